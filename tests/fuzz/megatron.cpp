// A Megatron index, beside 128 bytes of tokens.
#include "tests/fuzz/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  static const fuzz::InputFile index("m.idx"), tokens("m.bin");
  static const std::string path = tokens.write(std::string(128, '\1'));
  index.write(fuzz::text(data, size));
  fuzz::read_token_file(path);
  return 0;
}
