#include "lib/io/manifest.h"

#include <algorithm>
#include <set>

#include "lib/io/json.h"
#include "lib/io/safetensors.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/file_error.h"
#include "lib/util/mapped_file.h"

namespace scatterlm {
namespace {

using nlohmann::json;

constexpr int64_t kFormat = 1;

bool is_hash(const std::string& text) { return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == text.npos; }

/// Printable ASCII without spaces: nothing that moves the cursor of a terminal.
bool is_plain_tensor_name(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c > ' ' && c < '\x7f'; });
}

Manifest::File parse_file(const json& value, const std::string& where) {
  const JsonFields fields{value, where};
  const Manifest::File file{fields.text("name"), static_cast<uint64_t>(fields.count("bytes")), fields.text("xxh3")};
  if (!is_plain_file_name(file.name)) fail_user("{}: {} is not a file name that a checkpoint has", where, quote(file.name));
  if (!is_hash(file.xxh3)) fail_user("{}: file {}: {} is not a hash", where, file.name, quote(file.xxh3));
  return file;
}

Manifest::Tensor parse_tensor(const json& value, const std::string& where) {
  const JsonFields fields{value, where};
  const auto dtype = parse_safetensors_dtype(fields.text("dtype"));
  if (!dtype) fail_user("{}: dtype {} is not supported", where, quote(fields.text("dtype")));
  Manifest::Tensor tensor{*dtype, {}, {}};
  for (const json& size : fields.list("shape")) tensor.shape.push_back(fields.as_count(size, "shape"));
  if (!checked_numel(tensor.shape, tensor.dtype)) fail_user("{}: shape is too large", where);
  for (const json& item : fields.list("slices")) {
    const JsonFields slice{item, where};
    tensor.slices.push_back({slice.text("file"), slice.count("begin"), slice.count("end")});
  }
  return tensor;
}

}  // namespace

/// Nothing that leaves the folder, hides in it or cannot be typed.
bool is_plain_file_name(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name[0] != '.' && name.find_first_not_of(kAllowed) == name.npos;
}

int64_t Manifest::Tensor::numel() const { return checked_numel(shape, dtype).value(); }

std::string slice_key(const std::string& name, const Manifest::Tensor& tensor, const Manifest::Slice& slice) {
  return slice.end - slice.begin == tensor.numel() ? name : fmt::format("{}@{}", name, slice.begin);
}

std::string dump_manifest(const Manifest& manifest) {
  json files = json::array(), tensors = json::object();
  for (const auto& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", file.xxh3}});
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    json slices = json::array();
    for (const auto& slice : tensor.slices) {
      slices.push_back({{"file", slice.file}, {"begin", slice.begin}, {"end", slice.end}});
    }
    tensors[name] = {
        {"dtype", safetensors_dtype(tensor.dtype).value()}, {"shape", tensor.shape}, {"slices", std::move(slices)}};
  }
  const json text = {{"format", kFormat},
                     {"step", manifest.step},
                     {"world", manifest.world},
                     {"files", std::move(files)},
                     {"tensors", std::move(tensors)}};
  return text.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  const json value = parse_json(text, where);
  const JsonFields fields{value, where};
  if (const int64_t format = fields.count("format"); format != kFormat) {
    throw AccessError(fmt::format("{}: format {} is not known, this program reads format {}", where, format, kFormat));
  }
  Manifest manifest{fields.count("step"), fields.count("world"), {}, {}};
  std::set<std::string> names;
  for (const json& item : fields.list("files")) {
    manifest.files.push_back(parse_file(item, where));
    const std::string& name = manifest.files.back().name;
    if (!names.insert(name).second) fail_user("{}: file {} is listed twice", where, name);
  }
  const json& tensors = fields.field("tensors");
  if (!tensors.is_object()) fail_user("{}: 'tensors' is not an object", where);
  for (const auto& [name, tensor] : tensors.items()) {
    if (!is_plain_tensor_name(name)) fail_user("{}: {} is not a tensor name that a checkpoint has", where, quote(name));
    manifest.tensors.emplace(name, parse_tensor(tensor, fmt::format("{}: tensor {}", where, quote(name))));
  }
  return manifest;
}

void merge_manifest(Manifest& manifest, const Manifest& part, const std::string& where) {
  if (part.step != manifest.step || part.world != manifest.world) {
    fail("{}: step {} of {} ranks, expected step {} of {}", where, part.step, part.world, manifest.step, manifest.world);
  }
  manifest.files.insert(manifest.files.end(), part.files.begin(), part.files.end());
  for (const auto& [name, tensor] : part.tensors) {
    const auto [known, is_new] = manifest.tensors.emplace(name, tensor);
    if (is_new) continue;
    if (known->second.dtype != tensor.dtype || known->second.shape != tensor.shape) {
      fail("{}: tensor {} has slices of different dtype or shape", where, quote(name));
    }
    auto& slices = known->second.slices;
    slices.insert(slices.end(), tensor.slices.begin(), tensor.slices.end());
    std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
}

void check_slices(const Manifest& manifest, const std::string& where) {
  std::set<std::string> names;
  for (const auto& file : manifest.files) names.insert(file.name);
  for (const auto& [name, tensor] : manifest.tensors) {
    int64_t covered = 0;
    const auto expect = [&, &name = name](int64_t begin) {
      if (begin < covered) fail_user("{}: tensor {}: slices overlap at element {}", where, quote(name), begin);
      if (begin > covered) fail_user("{}: tensor {}: elements {} to {} are missing", where, quote(name), covered, begin - 1);
    };
    for (const auto& slice : tensor.slices) {
      if (!names.count(slice.file)) fail_user("{}: tensor {}: file {} is not listed", where, quote(name), quote(slice.file));
      expect(slice.begin);
      if (slice.end < slice.begin || slice.end > tensor.numel()) {
        fail_user("{}: tensor {}: slice ends at {} of {} elements", where, quote(name), slice.end, tensor.numel());
      }
      covered = slice.end;
    }
    expect(tensor.numel());
  }
}

void check_file(const std::string& folder, const Manifest::File& file) {
  const std::string path = folder + "/" + file.name;
  const auto refuse = [&](const std::string& what) {
    fail_user("{}: damaged: {}; use another checkpoint or restore the file", path, what);
  };
  const MappedFile mapped(path);
  if (mapped.size() != file.bytes) refuse(fmt::format("{} bytes, the manifest says {}", mapped.size(), file.bytes));
  Hash hash;
  for (size_t begin = 0; begin < mapped.size();) {
    const size_t end = std::min(mapped.size(), begin + (size_t{64} << 20));
    hash.add(mapped.data() + begin, end - begin);
    mapped.release(begin, end);  // a file may be larger than the memory
    begin = end;
  }
  const std::string xxh3 = hash.hex();
  if (xxh3 != file.xxh3) refuse(fmt::format("hash {}, the manifest says {}", xxh3, file.xxh3));
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/manifest.json";
  const std::string text = read_file(path);
  if (read_file(folder + "/manifest.xxh3") != hash_hex(text) + "\n") {
    fail_user("{}: damaged: its hash is not the one in manifest.xxh3; use another checkpoint or restore the folder", path);
  }
  Manifest manifest = parse_manifest(text, path);
  check_slices(manifest, path);
  return manifest;
}

void write_manifest(const std::string& folder, const Manifest& manifest) {
  const FileDigest digest = write_file_atomic(folder + "/manifest.json", dump_manifest(manifest));
  write_file_atomic(folder + "/manifest.xxh3", digest.xxh3 + "\n");
}

}  // namespace scatterlm
