#include "lib/ops/routing.h"

#include <ATen/ATen.h>

#include "tests/catch.h"

namespace scatterlm {
namespace {

/// ids from a recurrence, so that experts have different numbers of rows.
at::Tensor make_ids(int64_t tokens, int64_t top_k, int64_t num_experts) {
  auto ids = at::empty({tokens, top_k}, at::kInt);
  uint32_t state = 12345;
  for (int64_t i = 0; i < ids.numel(); ++i) {
    state = state * 1664525u + 1013904223u;
    ids.view(-1)[i] = static_cast<int>((state >> 16) * (state >> 24) % num_experts);
  }
  return ids;
}

/// The definition: rows ascend in (expert, slot), inverse is the inverse, offsets are the exclusive prefix sums of the counts.
void require_is_routing_of(const ops::Routing& routing, const at::Tensor& ids, int64_t num_experts);

/// Both ways to compute it.
void require_routing_of(const at::Tensor& ids, int64_t num_experts) {
  require_is_routing_of(ops::make_routing(ids, num_experts), ids, num_experts);
  require_is_routing_of(ops::ref::make_routing(ids, num_experts), ids, num_experts);
}

void require_is_routing_of(const ops::Routing& routing, const at::Tensor& ids, int64_t num_experts) {
  const auto cpu_ids = ids.cpu().flatten(), sorted = routing.sorted_R.cpu(), inverse = routing.inverse_R.cpu(),
             offsets = routing.offsets_E1.cpu();
  REQUIRE(routing.num_tokens == ids.size(0));
  REQUIRE(routing.top_k == ids.size(1));
  REQUIRE(offsets.numel() == num_experts + 1);
  for (const auto& part : {sorted, inverse, offsets}) REQUIRE(part.scalar_type() == at::kInt);
  std::vector<int> expected;
  for (int64_t e = 0; e < num_experts; ++e) {
    REQUIRE(offsets[e].item<int>() == static_cast<int>(expected.size()));
    for (int64_t i = 0; i < cpu_ids.numel(); ++i)
      if (cpu_ids[i].item<int>() == e) expected.push_back(static_cast<int>(i));
  }
  REQUIRE(offsets[num_experts].item<int>() == static_cast<int>(expected.size()));
  REQUIRE(at::equal(sorted, at::tensor(expected, at::kInt)));
  for (size_t m = 0; m < expected.size(); ++m) REQUIRE(inverse[expected[m]].item<int>() == static_cast<int>(m));
}

}  // namespace

TEST_CASE("routing: sizes and corners", "[routing]") {
  SECTION("mixed") {
    const auto tokens = GENERATE(1, 31, 33), top_k = GENERATE(1, 2, 8), num_experts = GENERATE(8, 13);
    require_routing_of(make_ids(tokens, top_k, num_experts), num_experts);
  }
  SECTION("one expert takes all") { require_routing_of(at::full({17, 2}, 3, at::kInt), 5); }
  SECTION("one expert") { require_routing_of(at::zeros({17, 1}, at::kInt), 1); }
  SECTION("no tokens") { require_routing_of(at::empty({0, 2}, at::kInt), 4); }
  SECTION("every token takes every expert") { require_routing_of(at::arange(4, at::kInt).expand({5, 4}), 4); }
}

TEST_CASE("routing: errors", "[routing]") {
  REQUIRE_THROWS_WITH(ops::make_routing(at::tensor({0, 4}, at::kInt).view({1, 2}), 4),
                      ContainsSubstring("[routing] ids must be in 0..E-1=3, got 4 in slot 1"));
  REQUIRE_THROWS_WITH(ops::make_routing(at::tensor({0, -1}, at::kInt).view({1, 2}), 4), ContainsSubstring("got -1 in slot 1"));
  REQUIRE_THROWS_WITH(ops::make_routing(at::zeros({3, 2}, at::kLong), 4),
                      ContainsSubstring("[routing] ids must be int32 [T, K], got Long [3, 2]"));
  REQUIRE_THROWS_WITH(ops::make_routing(at::zeros({3, 0}, at::kInt), 4),
                      ContainsSubstring("[routing] every token needs an expert at least, got ids [3, 0]"));
}

TEST_CASE("routing: on a GPU", "[routing][.gpu]") {
  const auto tokens = GENERATE(0, 1, 33, 100);
  require_routing_of(make_ids(tokens, 2, 7).to(at::kCUDA), 7);
}

TEST_CASE("routing: more experts than the kernel takes, on a GPU", "[routing][.gpu]") {
  require_routing_of(make_ids(33, 2, 5000).to(at::kCUDA), 5000);
}

}  // namespace scatterlm
