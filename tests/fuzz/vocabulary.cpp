// vocab.json and, after a zero byte, merges.txt; what is accepted encodes texts.
#include "lib/tokenizer/read_tokenizer.h"
#include "tests/fuzz/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  const std::string_view both = fuzz::text(data, size);
  const size_t end = std::min(both.find('\0'), both.size());
  const std::string_view merges = both.substr(std::min(end + 1, both.size()));
  fuzz::accept_or_throw_error(
      [&] { fuzz::use_tokenizer(read_vocabulary_and_merges(both.substr(0, end), merges, "vocab.json", "merges.txt")); });
  return 0;
}
