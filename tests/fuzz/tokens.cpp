// A token file: llm.c, NumPy or bare tokens, as its first bytes say.
#include "tests/fuzz/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  static const fuzz::InputFile file("a.bin");
  fuzz::read_token_file(file.write(fuzz::text(data, size)));
  return 0;
}
