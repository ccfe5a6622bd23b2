#include "lib/report/width_match.h"

#include "lib/config/load.h"
#include "tests/catch.h"

using namespace scatterlm;

namespace {

Side sized(const std::string& path, const std::vector<std::string>& sets = {}) {
  return {.name = path, .path = path, .config = load_config(path, sets), .numerics = {at::kCPU, at::kFloat, true}};
}

constexpr const char* kDensePath = "configs/tiny_dense.yaml";
constexpr const char* kMoePath = "configs/tiny_moe.yaml";

}  // namespace

TEST_CASE("width_match: the width that makes sizes equal") {
  const auto dense = sized(kDensePath);
  REQUIRE_NOTHROW(require_same_size(dense, sized(kMoePath), MatchedSize::kActiveFlops));
  REQUIRE_NOTHROW(require_same_size(dense, sized(kMoePath), MatchedSize::kActiveParameters));
  // 80 is 48 columns short of the 128 with which each token uses as many weights as in the dense MLP.
  REQUIRE_THROWS_WITH(
      require_same_size(dense, sized(kMoePath, {"model.moe.moe_intermediate_size=80"}), MatchedSize::kActiveFlops),
      ContainsSubstring("'model.moe.moe_intermediate_size: 128' in place of 80 would give 4.94M"));
  REQUIRE_THROWS_WITH(require_same_size(sized(kMoePath), sized(kDensePath, {"model.dense.intermediate_size=512"}),
                                        MatchedSize::kActiveParameters),
                      ContainsSubstring("'model.dense.intermediate_size: 256' in place of 512 would give 690k"));
  // Parameters of all experts: 1.87M with 8 times 128, 690k with about 8 times 32.
  REQUIRE_THROWS_WITH(
      require_same_size(dense, sized(kMoePath), MatchedSize::kTotalParameters),
      "--match: configs/tiny_moe.yaml has 1.87M parameters, configs/tiny_dense.yaml has 690k, more than 2 % apart; "
      "'model.moe.moe_intermediate_size: 32' in place of 128 would give 694k");
}
