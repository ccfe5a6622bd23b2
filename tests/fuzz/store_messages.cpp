// What ranks read from the store: a heartbeat, and two identities with a zero byte between them.
#include "lib/distributed/store_messages.h"

#include <algorithm>

#include "lib/distributed/topology.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  const std::string text(fuzz::text(data, size));
  if (const auto progress = read_heartbeat(text)) {
    if (read_heartbeat(write_heartbeat(1, *progress)) != progress) std::abort();
  }
  const size_t middle = std::min(text.find('\0'), text.size());
  const std::string first = text.substr(0, middle), second = text.substr(std::min(middle + 1, text.size()));
  const auto [x, y] = first_difference(first, second);
  for (const auto* line : {&x, &y}) {
    if (std::ranges::any_of(*line, is_control)) std::abort();
  }
  fuzz::accept_or_throw_error([&] { check_gpus({first, second, text}); });
  if (number_machines({first, second, first}).back() != 0) std::abort();
  return 0;
}
