// Broken token files: a reader may only accept or throw Error, and what it accepts must be readable to the end.
#include "lib/data/token_file.h"
#include "lib/util/error.h"
#include "tests/data/files.h"
#include "tests/mutate.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// True if the file was accepted.
bool survives(const std::string& path) {
  try {
    const TokenFile file(path, TokenWidth::kUint16);
    std::vector<int64_t> tokens(static_cast<size_t>(file.num_tokens()));
    file.read(0, file.num_tokens(), int64_t{1} << 40, tokens.data());
    if (!file.documents()) return true;
    for (int64_t document = 0; document <= file.documents()->num_documents(); ++document) {
      const int64_t begin = file.documents()->document_begin(document);
      if (begin < 0 || begin > file.num_tokens()) throw std::logic_error("document outside of the file");
    }
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    if (message.find('\n') != std::string::npos) throw std::logic_error("message of several lines: " + message);
    return false;
  }
}

/// Tries mutations of `valid` written to `written`, which reading `path` touches. Some must pass and some not, else nothing was
/// tested.
void fuzz(const std::string& valid, const std::string& written, const std::string& path, uint64_t seed) {
  std::ofstream(written, std::ios::binary) << valid;
  std::mt19937_64 rng(seed);
  int64_t accepted = 0;
  const int64_t count = fuzz_count();
  for (int64_t i = 0; i < count; ++i) {
    const std::string broken = mutate(valid, rng);
    // In place: a file that is truncated to nothing and written anew costs a discard on some disks, milliseconds each.
    std::fstream(written, std::ios::binary | std::ios::in | std::ios::out) << broken;
    std::filesystem::resize_file(written, broken.size());
    accepted += survives(path);
  }
  REQUIRE(accepted > 0);
  REQUIRE(accepted < count);
}

}  // namespace

TEST_CASE("fuzz: llm.c token files", "[fuzz]") {
  const TempDir dir;
  fuzz(llmc_u16(iota(20)), dir / "a.bin", dir / "a.bin", 1);
}

TEST_CASE("fuzz: Megatron indices", "[fuzz]") {
  const TempDir dir;
  dir.write("m.bin", tokens_as<uint16_t>(iota(64)));
  fuzz(megatron_index(8, 2, {3, 0, 4, 9, 1}, {0, 1, 3, 5}), dir / "m.idx", dir / "m", 2);
}

TEST_CASE("fuzz: npy files", "[fuzz]") {
  const TempDir dir;
  const std::string dict = "{'descr': '<u2', 'fortran_order': False, 'shape': (9,), }";
  fuzz(npy(dict, tokens_as<uint16_t>(iota(9))), dir / "a.npy", dir / "a.npy", 3);
}
