#include "lib/data/token_writer.h"

#include <sys/resource.h>

#include <csignal>

#include "lib/data/token_file.h"
#include "lib/util/error.h"
#include "tests/data/files.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

int64_t files_in(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

}  // namespace

TEST_CASE("token writer: llm.c's bytes, both widths") {
  const TempDir dir;
  const std::vector<uint32_t> tokens = {1, 65535, 3};
  TokenWriter narrow(dir / "a.bin", 65536);
  narrow.append({tokens.data(), 2});
  narrow.append({tokens.data() + 2, 1});
  REQUIRE(narrow.num_tokens() == 3);
  narrow.finish();
  REQUIRE(!std::filesystem::exists(dir / "a.bin"));
  narrow.publish(dir / "a.bin");
  REQUIRE(read_bytes(dir / "a.bin") == with_checksum(llmc_u16({1, 65535, 3})));

  TokenWriter wide(dir / "b.bin", 65537);
  wide.append(tokens);
  wide.finish();
  wide.publish(dir / "b.bin");
  REQUIRE(read_bytes(dir / "b.bin") == with_checksum(llmc_u32({1, 65535, 3})));
  REQUIRE(files_in(dir / "") == 2);
}

TEST_CASE("token writer: more than a buffer") {
  const TempDir dir;
  const std::vector<int64_t> values = iota(3'000'000);
  TokenWriter writer(dir / "a.bin", 1 << 24);
  for (size_t begin = 0; begin < values.size(); begin += 1000) {
    const std::vector<uint32_t> piece(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                      values.begin() + static_cast<std::ptrdiff_t>(begin) + 1000);
    writer.append(piece);
  }
  writer.finish();
  writer.publish(dir / "a.bin");
  const bool same = read_bytes(dir / "a.bin") == with_checksum(llmc_u32(values));  // outside of REQUIRE, which would print both
  REQUIRE(same);
}

TEST_CASE("token writer: two of one path do not mix") {
  const TempDir dir;
  TokenWriter one(dir / "a.bin", 257), other(dir / "a.bin", 257);
  one.append(std::vector<uint32_t>{1, 2});
  other.append(std::vector<uint32_t>{3});
  for (auto* writer : {&one, &other}) {
    writer->finish();
    writer->publish(dir / "a.bin");
  }
  REQUIRE(read_bytes(dir / "a.bin") == with_checksum(llmc_u16({3})));
  REQUIRE(files_in(dir / "") == 1);
}

TEST_CASE("token writer: without publish() nothing remains") {
  const TempDir dir;
  for (bool finished : {false, true}) {
    TokenWriter writer(dir / "a.bin", 257);
    writer.append(std::vector<uint32_t>{1, 2});
    TokenWriter moved(std::move(writer));
    REQUIRE(files_in(dir / "") == 1);
    if (finished) moved.finish();
  }
  REQUIRE(files_in(dir / "") == 0);
}

TEST_CASE("token writer: a folder that is missing, a disk that is full") {
  const TempDir dir;
  REQUIRE_THROWS_WITH(TokenWriter(dir / "gone/a.bin", 257), (dir / "gone/a.bin") + ": cannot write: No such file or directory");

  // A limit on the size of files acts as a full disk.
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  std::string message;
  try {
    TokenWriter writer(dir / "a.bin", 257);
    writer.append(std::vector<uint32_t>(1 << 20, 7));
    writer.finish();
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  REQUIRE(message == (dir / "a.bin") + ": cannot write: File too large");
  REQUIRE(files_in(dir / "") == 0);
}
