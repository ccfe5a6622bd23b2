#include "lib/config/difference.h"

#include "lib/config/keys.h"

namespace scatterlm {

std::vector<Difference> differences(const Config& first, const Config& second) {
  const auto a = list_keys(first), b = list_keys(second);
  std::vector<Difference> result;
  for (size_t i = 0; i < a.size(); i++) {
    if (a[i].value != b[i].value) result.push_back({a[i].path, a[i].value, b[i].value, a[i].on_resume});
  }
  return result;
}

}  // namespace scatterlm
