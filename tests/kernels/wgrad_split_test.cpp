// Split-k of the gradients of expert weights, on the host as on the device: every product once, in order, and even work.
#include "kernels/grouped_gemm/wgrad_split.h"

#include <map>
#include <queue>
#include <tuple>

#include "tests/catch.h"
#include "tests/kernels/cases.h"

namespace scatterlm::kernels::test {
namespace {

WgradSplit plan(const Experts& experts, int tiles, int num_sms) {
  WgradSplit split{};
  WgradPlanner<OneLane>(experts.offsets.data(), experts.num_experts(), tiles, num_sms, split).plan();
  return split;
}

using Kind = WgradPart::Kind;
using Work = std::vector<WgradPart>;  // what a block does one after another

/// By number: the tiles of chunks, then those of experts.
std::vector<Work> numbered(const WgradSplitSchedule& schedule) {
  std::vector<Work> all;
  for (WgradPart part; schedule.find(static_cast<int>(all.size()), part);) {
    all.push_back({part});
    while (schedule.find_next(part)) all.back().push_back(part);
  }
  return all;
}
Work sums_of_block(const WgradSplitSchedule& schedule, int block, int num_blocks) {
  const int64_t strips = schedule.num_slot_strips();
  const int end = static_cast<int>(strips * (block + 1) / num_blocks);
  Work sums;
  for (int strip = static_cast<int>(strips * block / num_blocks); strip < end;) {
    sums.emplace_back();
    strip = schedule.find_sum(strip, end, sums.back());
  }
  return sums;
}

/// Each token's `top_k` largest of normal logits, less bias(e): the loads of `scatterlm bench --routing`.
template <class Bias>
Experts routed(int tokens, int num_experts, int top_k, Bias&& bias) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  std::vector<int> counts(num_experts);
  std::vector<std::pair<float, int>> logits(num_experts);
  for (int t = 0; t < tokens; ++t) {
    for (int e = 0; e < num_experts; ++e) logits[e] = {normal(generator) - bias(float(e)), e};
    std::nth_element(logits.begin(), logits.begin() + top_k, logits.end(), std::greater<>());
    for (int k = 0; k < top_k; ++k) ++counts[logits[k].second];
  }
  return Experts(counts);
}
float random_load(float) { return 0; }
float skewed_load(float e) { return std::log1p(e); }
float collapsed_load(float e) { return e / 2; }

Experts in_random_order(const Experts& experts) {
  std::vector<int> counts;
  for (const int e : random_permutation(experts.counts.size(), 3)) counts.push_back(experts.counts[e]);
  return Experts(counts);
}
/// The first `some` of num_experts share all rows.
Experts taken_by(int some, int num_rows, int num_experts) {
  std::vector<int> counts(num_experts);
  std::fill_n(counts.begin(), some, num_rows / some);
  return Experts(counts);
}

std::vector<Experts> split_tables() {
  auto all = expert_tables();
  std::vector<int> many(1024, 3);
  for (size_t i = 0; i < many.size(); i += 3) many[i] = int(i) * 2;
  many[500] = 50000;
  std::vector<int> too_many(600, 1000);  // for the list of long experts
  too_many[30] = 100000;
  all.insert(all.end(),
             {Experts({0, 0, 0}), Experts({100000, 3}), Experts({0, 5000, 0, 4000, 2, 0, 900, 6400, 0}), Experts(many),
              taken_by(8, 262144, 64), routed(3000, 32, 4, skewed_load), routed(3000, 32, 4, collapsed_load)});
  return all;
}

/// Time until the last block is done, in blocks of rows, if blocks take work as it comes; costs as of WgradPlanner.
double makespan(const WgradSplitSchedule& schedule, int num_sms) {
  constexpr double kStore = 4, kWait = 2, kReadSlot = 5;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int i = 0; i < num_sms; ++i) free_at.push(0);
  double done = 0;
  for (const auto& work : numbered(schedule)) {
    double end = free_at.top();
    for (const auto& part : work)
      if (part.row < part.row_end) end += ceil_div(part.row_end - part.row, kWgradBlockRows) + kStore;
    free_at.pop();
    free_at.push(end);
    done = std::max(done, end);
  }
  const double slots = double(schedule.num_slot_strips()) / kWgradStrips;
  return slots > 0 ? done + kWait + kReadSlot * slots / num_sms : done;
}

}  // namespace

TEST_CASE("wgrad split: every row of every tile once, and every partial sum into its tile", "[kernels]") {
  const auto experts = GENERATE(from_range(split_tables()));
  const int m_tiles = GENERATE(1, 5), n_tiles = GENERATE(1, 3), num_sms = GENERATE(1, 3, 132), tiles = m_tiles * n_tiles;
  INFO("rows " << experts.num_rows() << ", experts " << experts.num_experts() << ", tiles " << tiles << ", SMs " << num_sms);
  const auto split = plan(experts, tiles, num_sms);
  REQUIRE(split.num_pieces * tiles <= most_wgrad_slots(experts.num_rows(), tiles, num_sms));
  const WgradSplitSchedule schedule(experts.offsets.data(), experts.num_experts(), m_tiles, n_tiles, split);
  using Tile = std::tuple<int, int, int>;
  std::map<Tile, int> rows_done;           // up to this row, in order
  std::map<Tile, std::vector<int>> slots;  // of its pieces
  std::map<Tile, int> summed;              // up to this strip, in order
  std::vector<bool> slot_used(split.num_pieces * tiles);
  for (const auto& work : numbered(schedule)) {
    for (const auto& part : work) {
      REQUIRE((part.m_tile >= 0 && part.m_tile < m_tiles && part.n_tile >= 0 && part.n_tile < n_tiles));
      REQUIRE((part.m_tile == work[0].m_tile && part.n_tile == work[0].n_tile));
      if (part.kind == Kind::kNothing) continue;
      const Tile tile{part.expert, part.m_tile, part.n_tile};
      const int first = experts.offsets.at(part.expert), end = experts.offsets.at(part.expert + 1);
      if (part.kind == Kind::kTile) {
        REQUIRE(part.num_pieces == 0);
        REQUIRE((part.row == first && part.row_end == end));
        REQUIRE(rows_done.emplace(tile, end).second);
        continue;
      }
      REQUIRE(part.kind == Kind::kPiece);
      REQUIRE_FALSE(slot_used.at(part.slot));
      slot_used[part.slot] = true;
      REQUIRE(part.row == (slots.contains(tile) ? rows_done.at(tile) : first));
      REQUIRE((part.row_end == end || (part.row_end - first) % kWgradBlockRows == 0));
      REQUIRE(ceil_div(part.row_end - part.row, kWgradBlockRows) >= WgradSplit::kShortestPiece);
      rows_done[tile] = part.row_end;
      slots[tile].push_back(part.slot);
    }
  }
  REQUIRE(std::count(slot_used.begin(), slot_used.end(), false) == 0);
  REQUIRE(rows_done.size() == size_t(experts.num_experts()) * tiles);
  for (const auto& [tile, row] : rows_done) REQUIRE(row == experts.offsets.at(std::get<0>(tile) + 1));
  for (int block = 0; block < num_sms; ++block) {
    for (const auto& sum : sums_of_block(schedule, block, num_sms)) {
      REQUIRE((sum.kind == Kind::kSum && sum.row == sum.row_end));
      const Tile tile{sum.expert, sum.m_tile, sum.n_tile};
      REQUIRE(sum.num_pieces == static_cast<int>(slots.at(tile).size()));
      for (int i = 0; i < sum.num_pieces; ++i) REQUIRE(slots[tile][i] == sum.slot + i * tiles);
      REQUIRE(sum.strip == summed[tile]);
      REQUIRE(sum.strip <= sum.strip_end);
      summed[tile] = sum.strip_end;
    }
  }
  for (const auto& [tile, pieces] : slots) {
    REQUIRE(pieces.size() > 1);
    REQUIRE(summed[tile] == kWgradStrips);
  }
}

TEST_CASE("wgrad split: uneven loads take about as long as random ones", "[kernels]") {
  struct Shape {
    const char* name;
    int tokens, num_experts, top_k, m_tiles, n_tiles;
  };
  // D / 128 and F / 256 of dW2, 2 F / 128 and D / 256 of dW1.
  const auto shape = GENERATE(Shape{"32768,768,256,64,8 dW2", 32768, 64, 8, 6, 1}, Shape{"its dW1", 32768, 64, 8, 4, 3},
                              Shape{"24576,1536,256,128,8 dW2", 24576, 128, 8, 12, 1}, Shape{"its dW1", 24576, 128, 8, 4, 6},
                              Shape{"40960,768,256,128,8 dW2", 40960, 128, 8, 6, 1}, Shape{"its dW1", 40960, 128, 8, 4, 3},
                              Shape{"32768,2048,1024,64,8 dW2", 32768, 64, 8, 16, 4}, Shape{"its dW1", 32768, 64, 8, 16, 8});
  const int num_sms = 132, tiles = shape.m_tiles * shape.n_tiles, rows = shape.tokens * shape.top_k;
  INFO(shape.name);
  const auto time = [&](const Experts& experts) {
    const auto split = plan(experts, tiles, num_sms);
    return makespan({experts.offsets.data(), experts.num_experts(), shape.m_tiles, shape.n_tiles, split}, num_sms);
  };
  const auto pieces = [&](const Experts& experts) { return plan(experts, tiles, num_sms).num_pieces; };
  const auto routed_by = [&](auto&& bias) { return routed(shape.tokens, shape.num_experts, shape.top_k, bias); };
  REQUIRE(pieces(routed_by(random_load)) == 0);
  REQUIRE(pieces(taken_by(shape.num_experts, rows, shape.num_experts)) == 0);
  const double random = time(routed_by(random_load));
  const double skewed = time(routed_by(skewed_load)) / random, collapsed = time(routed_by(collapsed_load)) / random;
  const double shuffled = time(in_random_order(routed_by(skewed_load))) / random;
  const double same = time(taken_by(shape.top_k, rows, shape.num_experts)) / random;
  const double one = time(taken_by(1, rows, shape.num_experts)) / random;
  UNSCOPED_INFO("skewed " << skewed << ", in random order " << shuffled << ", collapsed " << collapsed
                          << ", all tokens the same experts " << same << ", one expert " << one);
  CHECK(skewed <= 1.05);
  CHECK(shuffled <= 1.05);
  CHECK(collapsed <= 1.05);
  CHECK(same <= 1.1);
  CHECK(one <= 1.1);
}

}  // namespace scatterlm::kernels::test
