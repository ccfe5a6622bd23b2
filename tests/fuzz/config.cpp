// A configuration file; lines after "%set " are --set options.
#include "lib/config/load.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  constexpr std::string_view kMark = "\n%set ";
  std::string_view rest = fuzz::text(data, size);
  const size_t end = rest.find(kMark);
  const std::string yaml(rest.substr(0, end));
  std::vector<std::string> sets;
  while ((rest = rest.substr(std::min(rest.size(), rest.find(kMark)))).size() > kMark.size()) {
    rest.remove_prefix(kMark.size());
    sets.emplace_back(rest.substr(0, rest.find(kMark)));
  }
  fuzz::accept_or_throw_error([&] {
    const Config config = parse_config(yaml, "x.yaml", sets);
    // What is accepted is written, and read back to the same.
    if (!(parse_config(dump_config(config), "dump") == config)) std::abort();
  });
  return 0;
}
