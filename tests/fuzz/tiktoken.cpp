// A tiktoken file; what is accepted encodes texts.
#include "lib/tokenizer/read_tokenizer.h"
#include "tests/fuzz/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  fuzz::accept_or_throw_error([&] { fuzz::use_tokenizer(read_tiktoken(fuzz::text(data, size), "cl100k_base.tiktoken")); });
  return 0;
}
