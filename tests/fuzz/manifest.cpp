// A checkpoint's manifest; what is accepted is written and read back to the same text.
#include "lib/io/manifest.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  fuzz::accept_or_throw_error([&] {
    const auto manifest = parse_manifest(fuzz::text(data, size), "manifest.json");
    check_slices(manifest, "manifest.json");
    const auto dumped = dump_manifest(manifest);
    if (dump_manifest(parse_manifest(dumped, "dump")) != dumped) std::abort();
  });
  return 0;
}
