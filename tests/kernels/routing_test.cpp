#include "kernels/routing.h"

#include <algorithm>
#include <numeric>

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

struct Case {
  int tokens, top_k, experts;
  enum { kRandom, kOneTakesAll, kDescending } load = kRandom;

  std::vector<int32_t> ids() const {
    auto ids = random_rows(size_t(tokens) * top_k, experts, 1);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (load == kOneTakesAll) ids[i] = experts - 1;
      if (load == kDescending) ids[i] = experts - 1 - int(i * experts / ids.size());
    }
    return ids;
  }
};

std::vector<Case> cases() {
  return {{0, 2, 5},
          {1, 1, 1},
          {1, 8, 8},
          {31, 1, 3},
          {33, 2, 1024},
          {700, 8, 128},
          {2049, 2, 4096},
          {9000, 1, 7},
          {40000, 4, 60},
          {3000, 1, 33, Case::kOneTakesAll},
          {3000, 3, 40, Case::kDescending}};
}

}  // namespace

TEST_CASE("routing: a stable sort by expert", KERNEL_TAGS) {
  const auto c = GENERATE(from_range(cases()));
  INFO("T " << c.tokens << ", K " << c.top_k << ", E " << c.experts);
  const auto ids = c.ids();
  const size_t rows = ids.size();
  const Buffer<int32_t> ids_R(ids), sorted(rows), tokens(rows), inverse(rows), offsets(size_t(c.experts) + 1),
      tiles(size_t(c.experts) + 3);
  const Buffer<char> workspace(static_cast<size_t>(routing_workspace_bytes(int64_t(rows), c.experts)));
  make_routing({ids_R.data(), int64_t(rows), c.top_k, c.experts, sorted.data(), tokens.data(), inverse.data(), offsets.data(),
                tiles.data(), workspace.data()},
               nullptr);

  std::vector<int32_t> order(rows), token(rows), row(rows), counts(c.experts);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return ids[a] < ids[b]; });
  for (size_t m = 0; m < rows; ++m) {
    token[m] = order[m] / c.top_k;
    row[order[m]] = int(m);
  }
  for (const int id : ids) ++counts[id];
  const Experts experts(counts);
  REQUIRE(sorted.host() == order);
  REQUIRE(tokens.host() == token);
  REQUIRE(inverse.host() == row);
  REQUIRE(offsets.host() == experts.offsets);
  REQUIRE(tiles.host() == experts.tiles);
}

TEST_CASE("routing: limits", KERNEL_TAGS) {
  RoutingArgs args{};
  args.num_experts = 4097;
  REQUIRE_THROWS_WITH(make_routing(args, nullptr),
                      "[routing] num_experts must be 1..4096 on this GPU (shared memory of a block), got 4097");
  args.num_experts = 2;
  args.num_rows = int64_t{1} << 31;
  REQUIRE_THROWS_WITH(make_routing(args, nullptr), "[routing] T*K must be below 2^31, got 2147483648");
}

TEST_CASE("routing: the shared memory of a GPU bounds the experts") {
  REQUIRE(max_routing_experts(99 << 10) == 2816);
  REQUIRE(max_routing_experts(227 << 10) == 4096);
#ifdef SCATTERLM_EMULATED
  const auto hopper = std::exchange(emulated::max_shared_bytes, 99 << 10);
  RoutingArgs args{};
  args.num_experts = 2817;
  REQUIRE_THROWS_WITH(make_routing(args, nullptr),
                      "[routing] num_experts must be 1..2816 on this GPU (shared memory of a block), got 2817");
  emulated::max_shared_bytes = hopper;
#endif
}

}  // namespace scatterlm::kernels::test
