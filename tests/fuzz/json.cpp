// A checkpoint's state.json.
#include "lib/io/json.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  fuzz::accept_or_throw_error([&] { parse_json(fuzz::text(data, size), "state.json"); });
  return 0;
}
