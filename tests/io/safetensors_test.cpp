#include "lib/io/safetensors.h"

#include <ATen/ATen.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "lib/util/error.h"
#include "tests/mutate.h"

#include "tests/catch.h"

using namespace scatterlm;
namespace fs = std::filesystem;

namespace {

/// A file of its own, removed at the end.
struct TemporaryFile {
  std::string path = fs::temp_directory_path() / fmt::format("scatterlm_{}.safetensors", getpid());
  ~TemporaryFile() { fs::remove(path); }

  void write(const std::string& bytes) const {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
};

std::string little_endian(uint64_t value) { return std::string(reinterpret_cast<const char*>(&value), sizeof(value)); }

/// A file from its parts, byte by byte.
std::string compose(const std::string& header, size_t data_bytes) {
  std::string data;
  for (size_t i = 0; i < data_bytes; ++i) data.push_back(static_cast<char>(i));
  return little_endian(header.size()) + header + data;
}

}  // namespace

TEST_CASE("safetensors: the bytes of a written file") {
  const TemporaryFile file;
  const std::vector<std::pair<std::string, at::Tensor>> tensors = {
      {"b", at::tensor({1.F, -2.F})},
      {"c", at::tensor({int64_t{3}})},
      {"a", at::tensor({0.5F}).reshape({})},
      {"d", at::tensor({1, 0, 1}).to(at::kBool)},
  };
  const FileDigest digest = write_safetensors(file.path, tensors, {{"note", "x"}});
  const std::string header = R"({"__metadata__":{"format":"pt","note":"x"},)"
                             R"("a":{"data_offsets":[8,12],"dtype":"F32","shape":[]},)"
                             R"("b":{"data_offsets":[12,20],"dtype":"F32","shape":[2]},)"
                             R"("c":{"data_offsets":[0,8],"dtype":"I64","shape":[1]},)"
                             R"("d":{"data_offsets":[20,23],"dtype":"BOOL","shape":[3]}})";
  const size_t padded = (header.size() + 7) / 8 * 8;
  const std::string bytes = read_file(file.path);
  REQUIRE(bytes.substr(0, 8) == little_endian(padded));
  REQUIRE(bytes.substr(8, padded) == header + std::string(padded - header.size(), ' '));
  REQUIRE(bytes.substr(8 + padded) == little_endian(3) + std::string("\0\0\0\x3f\0\0\x80\x3f\0\0\0\xc0\1\0\1", 15));
  REQUIRE(digest.bytes == bytes.size());
  REQUIRE(digest.xxh3 == hash_hex(bytes));
}

TEST_CASE("safetensors: every dtype, odd shapes and strides come back") {
  const TemporaryFile file;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto dtype :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
        at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kUInt16, at::kUInt32, at::kUInt64, at::kComplexFloat}) {
    tensors.emplace_back(at::toString(dtype), at::arange(7).to(dtype));
  }
  tensors.emplace_back("scalar", at::scalar_tensor(3.5));
  tensors.emplace_back("empty", at::empty({3, 0, 2}));
  tensors.emplace_back("transposed", at::arange(6.).reshape({2, 3}).t());
  tensors.emplace_back("part", at::arange(10.).slice(0, 2, 9, 3));
  tensors.emplace_back("needs grad", at::ones({2}).requires_grad_());
  tensors.emplace_back("name \"\n\xc3\xa9", at::ones({1}));
  write_safetensors(file.path, tensors);

  const SafetensorsFile read(file.path);
  REQUIRE(read.entries().size() == tensors.size());
  REQUIRE(read.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  for (const auto& [name, tensor] : tensors) {
    INFO(name);
    const at::Tensor copy = read.tensor(name);
    REQUIRE(copy.scalar_type() == tensor.scalar_type());
    REQUIRE(copy.sizes() == tensor.sizes());
    const at::Tensor expected = tensor.detach().contiguous();
    REQUIRE((copy.numel() == 0 || std::memcmp(copy.const_data_ptr(), expected.const_data_ptr(), copy.nbytes()) == 0));
  }
}

TEST_CASE("safetensors: no tensors at all") {
  const TemporaryFile file;
  write_safetensors(file.path, {});
  REQUIRE(SafetensorsFile(file.path).entries().empty());
  file.write(compose("{}", 0));
  REQUIRE(SafetensorsFile(file.path).metadata().empty());
}

TEST_CASE("safetensors: progress of several files is told in bytes of all of them") {
  const auto tensor = [](const std::string& name, int64_t size) {
    const auto write = [=](const StreamedTensor::Sink& out) {
      for (int64_t i = 0; i < size; ++i) out("abcd");
    };
    return StreamedTensor{name, at::kInt, {size}, write};
  };
  std::vector<int64_t> told;
  const auto tensors = with_progress({tensor("a", 2), tensor("b", 1)}, [&](int64_t done) { told.push_back(done); });
  REQUIRE(total_bytes(tensors) == 12);
  std::string text;
  for (const auto& one : tensors) one.write([&](std::string_view bytes) { text += bytes; });
  REQUIRE(text == "abcdabcdabcd");
  REQUIRE(told == std::vector<int64_t>{4, 8, 12});
}

TEST_CASE("safetensors: legal files of other writers") {
  const TemporaryFile file;
  SECTION("data that is not aligned, unknown fields, spaces") {
    file.write(compose(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}, "b" : {"dtype":"I32","shape":[1,1],)"
                       R"("data_offsets":[1,5],"extra":[{"x":1}]}}   )",
                       5));
    const SafetensorsFile read(file.path);
    REQUIRE(read.tensor("b").item<int32_t>() == 0x04030201);
    int32_t out = 0;
    read.copy_elements("b", 0, 1, &out);
    REQUIRE(out == 0x04030201);
    REQUIRE_THROWS_WITH(read.copy_elements("b", 0, 2, &out), ContainsSubstring("tensor \"b\" has no elements 0 to 2"));
    REQUIRE_THROWS_WITH(read.tensor("c"), file.path + ": safetensors: no tensor is named \"c\"");
  }
  SECTION("a BOOL that is neither 0 nor 1") {
    file.write(compose(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3));
    const at::Tensor mask = SafetensorsFile(file.path).tensor("a");
    REQUIRE(mask.scalar_type() == at::kBool);
    REQUIRE(std::memcmp(mask.const_data_ptr(), "\0\1\1", 3) == 0);
  }
  SECTION("empty tensors share an offset") {
    file.write(
        compose(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                R"("c":{"dtype":"F32","shape":[9,0],"data_offsets":[0,0]}})",
                4));
    REQUIRE(SafetensorsFile(file.path).tensor("c").sizes() == at::IntArrayRef{9, 0});
  }
}

TEST_CASE("safetensors: every broken header is refused with its own line") {
  struct Case {
    std::string header;
    size_t data_bytes;
    std::string message;
  };
  const auto a = [](const std::string& fields) { return R"({"a":{)" + fields + "}}"; };
  const std::string f32 = R"("dtype":"F32","shape":[2],)";
  const Case cases[] = {
      {" {}", 0, "header does not begin with '{'"},
      {"", 0, "header does not begin with '{'"},
      {"[]", 0, "header does not begin with '{'"},
      {"{", 0, "not valid JSON (byte 2)"},
      {"{}x", 0, "not valid JSON (byte 3)"},
      {std::string("{}\0", 3), 0, "not valid JSON (byte 3)"},
      {"{\"\xff\":1}", 0, "not valid JSON (byte 3)"},
      {a("\"x\":1e999"), 0, "not valid JSON (a number is out of range)"},
      {R"({"a":1,"a":2})", 0, "key \"a\" is given twice"},
      {a(R"("dtype":"F32","dtype":"F32")"), 0, "key \"dtype\" is given twice"},
      {a("\"x\":" + std::string(100, '[') + std::string(100, ']')), 0, "JSON is nested deeper than 64"},
      {R"({"__metadata__":3})", 0, "__metadata__ is not an object"},
      {R"({"__metadata__":{"k":3}})", 0, "__metadata__: value of \"k\" is not a string"},
      {R"({"a":3})", 0, "tensor \"a\": not an object"},
      {R"({"a\n":3})", 0, "tensor \"a\\n\": not an object"},
      {a(R"("shape":[])"), 0, "tensor \"a\": dtype is not a string"},
      {a(R"("dtype":"F4")"), 0, "tensor \"a\": dtype \"F4\" is not supported"},
      {a(R"("dtype":"f32")"), 0, "tensor \"a\": dtype \"f32\" is not supported"},
      {a(R"("dtype":"F32")"), 0, "tensor \"a\": shape is not a list"},
      {a(R"("dtype":"F32","shape":[-1],"data_offsets":[0,0])"), 0, "tensor \"a\": shape holds something else than sizes"},
      {a(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4, "tensor \"a\": shape holds something else than sizes"},
      {a(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,0])"), 0,
       "tensor \"a\": shape holds something else than sizes"},
      {a(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0, "tensor \"a\": shape is too large"},
      {a(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"), 0, "tensor \"a\": shape is too large"},
      {a(R"("dtype":"F32","shape":[0,4611686018427387904],"data_offsets":[0,0])"), 0, "tensor \"a\": shape is too large"},
      {a(f32 + R"("data_offsets":[0])"), 0, "tensor \"a\": data_offsets has 1 numbers, not 2"},
      {a(f32 + R"("data_offsets":[8,0])"), 8, "tensor \"a\": data ends at 0, before its begin 8"},
      {a(f32 + R"("data_offsets":[0,7])"), 7, "tensor \"a\": shape and dtype need 8 bytes, data_offsets give 7"},
      {a(f32 + R"("data_offsets":[8,16])"), 16, "tensor \"a\": data begins at 8, but the one before ends at 0"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
       "tensor \"b\": data begins at 1, but the one before ends at 2"},
      {a(f32 + R"("data_offsets":[0,8])"), 7, "tensors end at byte 8 of 7 bytes of data"},
      {a(f32 + R"("data_offsets":[0,8])"), 9, "tensors end at byte 8 of 9 bytes of data"},
      {"{}", 1, "tensors end at byte 0 of 1 bytes of data"},
  };
  const TemporaryFile file;
  for (const auto& c : cases) {
    INFO(c.header);
    file.write(compose(c.header, c.data_bytes));
    REQUIRE_THROWS_WITH(SafetensorsFile(file.path), file.path + ": safetensors: " + c.message);
  }
}

TEST_CASE("safetensors: cut off and oversized files are refused") {
  const TemporaryFile file;
  file.write("");
  REQUIRE_THROWS_WITH(SafetensorsFile(file.path), file.path + ": safetensors: 0 bytes are too few for a header");
  file.write("1234567");
  REQUIRE_THROWS_WITH(SafetensorsFile(file.path), file.path + ": safetensors: 7 bytes are too few for a header");
  file.write(little_endian(3) + "{}");
  REQUIRE_THROWS_WITH(SafetensorsFile(file.path),
                      file.path + ": safetensors: header of 3 bytes, but only 2 follow: the file is cut off");
  file.write(little_endian(100'000'001) + "{}");
  REQUIRE_THROWS_WITH(SafetensorsFile(file.path),
                      file.path + ": safetensors: header of 100000001 bytes, at most 100000000 are allowed");
  file.write(little_endian(~uint64_t{0}) + "{}");
  REQUIRE_THROWS_WITH(SafetensorsFile(file.path), ContainsSubstring("header of 18446744073709551615 bytes, at most"));
  REQUIRE_THROWS_WITH(SafetensorsFile("/nonexistent/m"), "/nonexistent/m: cannot open: No such file or directory");
}

TEST_CASE("safetensors: what the format cannot hold is not written") {
  const TemporaryFile file;
  const auto one = at::ones({1});
  REQUIRE_THROWS_WITH(write_safetensors(file.path, {{"a", one}, {"a", one}}),
                      file.path + ": safetensors: two tensors are named \"a\"");
  REQUIRE_THROWS_WITH(write_safetensors(file.path, {{"__metadata__", one}}), ContainsSubstring("two tensors are named"));
  REQUIRE_THROWS_WITH(write_safetensors(file.path, {{"z", one.to(at::kComplexDouble)}}),
                      file.path + ": safetensors: tensor \"z\" has dtype ComplexDouble");
  REQUIRE(!fs::exists(file.path));
}

TEST_CASE("safetensors: mutated files are read or refused, nothing else", "[fuzz]") {
  const TemporaryFile original;
  write_safetensors(original.path, {{"layers.0.weight", at::ones({2, 3})},
                                    {"layers.0.bias", at::ones({3}, at::kBFloat16)},
                                    {"mask", at::ones({5}, at::kBool)},
                                    {"none", at::empty({0, 4})}});
  const std::string valid = read_file(original.path);
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);  // a disk would take most of the time
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  std::mt19937_64 rng(1);
  int64_t accepted = 0;
  const int64_t count = fuzz_count();
  for (int64_t i = 0; i < count; ++i) {
    const std::string bytes = mutate(valid, rng);
    REQUIRE(ftruncate(fd, 0) == 0);
    REQUIRE(pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    try {
      const SafetensorsFile read(path);
      for (const auto& [name, entry] : read.entries()) REQUIRE(read.tensor(name).nbytes() == entry.end - entry.begin);
      ++accepted;
    } catch (const Error& error) {
      REQUIRE(std::string_view(error.what()).find('\n') == std::string_view::npos);
    }
  }
  close(fd);
  REQUIRE(accepted > 0);  // edits of the data
  REQUIRE(accepted < count);
}
