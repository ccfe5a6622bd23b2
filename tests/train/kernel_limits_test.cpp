#include "lib/train/kernel_limits.h"

#include "lib/util/error.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

ModelConfig model(const std::function<void(ModelConfig&)>& change = {}) {
  ModelConfig config{.vocab_size = 512, .hidden_size = 64, .num_hidden_layers = 2, .layers = "moa+moe, gqa+dense"};
  if (change) change(config);
  return config;
}

}  // namespace

TEST_CASE("kernel limits: experts that a GPU cannot route to are refused by their key") {
  const auto many = [](int64_t experts) {
    return model([=](ModelConfig& config) { config.moe.num_experts = config.moa.num_experts = experts; });
  };
  REQUIRE_NOTHROW(require_routable(many(2816), 99 << 10));
  REQUIRE_THROWS_WITH(
      require_routable(many(2817), 99 << 10),
      "'model.moe.num_experts: 2817' must be at most 2816 on this GPU: more do not fit its 99 KiB of shared memory");
  REQUIRE_NOTHROW(require_routable(many(4096), 227 << 10));
  auto only_attention = many(3000);
  only_attention.layers = "moa+dense*2";
  REQUIRE_THROWS_WITH(require_routable(only_attention, 99 << 10), ContainsSubstring("'model.moa.num_experts: 3000' must be"));
  only_attention.layers = "gqa+dense*2";
  REQUIRE_NOTHROW(require_routable(only_attention, 99 << 10));
}

TEST_CASE("kernel limits: what runs without a kernel is named once, with the value that has one") {
  using Parts = std::vector<std::string>;
  const auto parts = [](const std::function<void(ModelConfig&)>& change, at::ScalarType dtype = at::kBFloat16) {
    return parts_without_kernel(model(change), dtype);
  };
  REQUIRE(parts({}).empty());
  REQUIRE(
      parts([](auto& config) { config.moe.moe_intermediate_size = 20; }) ==
      Parts{
          "experts have no kernels for 'model.moe.moe_intermediate_size: 20', and the host waits for the GPU in every layer: a "
          "multiple of 8 has them"});
  REQUIRE(
      parts([](auto& config) { config.hidden_size = 36; }) ==
      Parts{
          "experts have no kernels for 'model.hidden_size: 36', and the host waits for the GPU in every layer: a multiple of 8 "
          "has them"});
  REQUIRE(parts([](auto& config) { config.moa = {.num_key_value_heads = 1, .head_dim = 20}; }).size() == 1);
  REQUIRE(parts([](auto& config) { config.moe.num_experts = 1025; }) ==
          Parts{"routers have no kernel for 'model.moe.num_experts: 1025': up to 1024 experts have one"});
  REQUIRE(parts({}, at::kFloat).size() == 1);
  const auto plain = [](auto& config) {
    config.layers = "gqa+dense*2";
    config.hidden_size = 36;
    config.moe.num_experts = 4000;
  };
  REQUIRE(parts(plain, at::kFloat).empty());
}
