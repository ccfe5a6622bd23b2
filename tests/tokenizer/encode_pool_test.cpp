#include "lib/tokenizer/encode_pool.h"

#include <sys/resource.h>

#include <fstream>
#include <new>
#include <system_error>

#include "lib/tokenizer/piece_counts.h"
#include "lib/tokenizer/split_pattern.h"
#include "tests/catch.h"
#include "tests/data/files.h"

using namespace scatterlm;

namespace {

class NoMemory : public ByteTokenizer {
 public:
  std::unique_ptr<TextEncoder> encoder(SpecialTokens) const override { throw std::bad_alloc(); }
};

/// While this lives, the process gets `bytes` of address space more, of which the stack of a thread takes 2 or 8 MiB.
class LimitedAddressSpace {
 public:
  explicit LimitedAddressSpace(uint64_t bytes) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &old_);
    const rlimit tight{pages * 4096 + bytes, old_.rlim_max};
    setrlimit(RLIMIT_AS, &tight);
  }
  ~LimitedAddressSpace() { setrlimit(RLIMIT_AS, &old_); }

 private:
  rlimit old_{};
};

}  // namespace

TEST_CASE("encode pool: an encoder that cannot be made is the caller's error") {
  const NoMemory tokenizer;
  EncodePool pool(tokenizer, {}, 2);
  for (int i = 0; i < 3; ++i) pool.push({.text = "a", .end = 1});
  for (int i = 0; i < 3; ++i) REQUIRE_THROWS_AS(pool.pop(), std::bad_alloc);
}

TEST_CASE("encode pool: it ends with blocks in it") {
  const ByteTokenizer tokenizer;
  EncodePool pool(tokenizer, {}, 2);
  for (int i = 0; i < 50; ++i) pool.push({.text = std::string(10000, 'a'), .end = 10000});
  REQUIRE(pool.pop().tokens.size() == 10001);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need address space of their own for each thread
TEST_CASE("encode pool: a thread that cannot be started is the caller's error, and those before it end") {
  const ByteTokenizer tokenizer;
  const LimitedAddressSpace limit(uint64_t{500} << 20);
  REQUIRE_THROWS_AS(EncodePool(tokenizer, {}, 1000), std::system_error);
}

TEST_CASE("piece counts: a thread that cannot be started is the caller's error, and those before it end") {
  const TempDir dir;
  const CountOptions options{.paths = {dir.write("a.txt", "some words")}, .threads = 200};
  constexpr uint64_t kMatcherStack = 16 << 20;  // of each thread's split pattern
  const LimitedAddressSpace limit(200 * kMatcherStack + (uint64_t{200} << 20));
  REQUIRE_THROWS_AS(count_pieces(options, known_pattern("gpt2")), std::system_error);
}
#endif
