// A safetensors file; the tensors of one that is accepted are read.
#include "lib/io/safetensors.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  static const fuzz::InputFile file("a.safetensors");
  fuzz::accept_or_throw_error([&] {
    const SafetensorsFile read(file.write(fuzz::text(data, size)));
    for (const auto& [name, entry] : read.entries()) read.tensor(name);
  });
  return 0;
}
