// config.json of a Hugging Face model. What is accepted is written again, and read back to the same model.
#include "lib/hf/config_json.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  fuzz::accept_or_throw_error([&] {
    const auto read = hf::read_config_json(fuzz::text(data, size), "config.json");
    if (!hf::cannot_hold(read.config, *read.family).empty()) std::abort();
  });
  return 0;
}
