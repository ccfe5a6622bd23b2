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

std::vector<WgradPart> all_parts(const Experts& experts, int m_tiles, int n_tiles, const WgradSplit& split) {
  const WgradSplitSchedule schedule(experts.offsets.data(), experts.num_experts(), m_tiles, n_tiles, split);
  std::vector<WgradPart> parts;
  for (WgradPart part; schedule.find(static_cast<int>(parts.size()), part);) parts.push_back(part);
  return parts;
}

/// Each token's `top_k` largest of normal logits, less log(1 + e) if skewed: the loads of `scatterlm bench --routing`.
Experts routed(int tokens, int num_experts, int top_k, bool skewed) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  std::vector<int> counts(num_experts);
  std::vector<std::pair<float, int>> logits(num_experts);
  for (int t = 0; t < tokens; ++t) {
    for (int e = 0; e < num_experts; ++e) logits[e] = {normal(generator) - (skewed ? std::log1p(float(e)) : 0), e};
    std::nth_element(logits.begin(), logits.begin() + top_k, logits.end(), std::greater<>());
    for (int k = 0; k < top_k; ++k) ++counts[logits[k].second];
  }
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
  all.insert(all.end(), {Experts({0, 0, 0}), Experts({100000, 3}), Experts({0, 5000, 0, 4000, 2, 0, 900, 6400, 0}),
                         Experts(many), taken_by(8, 262144, 64), routed(3000, 32, 4, true)});
  return all;
}

/// Time until the last block is done, in blocks of rows, if blocks take parts as they come; costs as of WgradPlanner.
double makespan(const std::vector<WgradPart>& parts, int num_sms) {
  using Kind = WgradPart::Kind;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int i = 0; i < num_sms; ++i) free_at.push(0);
  double pieces_done = 0, last = 0;
  for (const auto& part : parts) {
    const double blocks = ceil_div(part.row_end - part.row, kWgradBlockRows), begin = free_at.top();
    double end = begin + 0.5;
    if (blocks > 0) end = begin + blocks + 3;
    if (part.kind == Kind::kPiece) pieces_done = std::max(pieces_done, end);
    if (part.kind == Kind::kSum) end = std::max(begin, pieces_done) + 5;
    free_at.pop();
    free_at.push(end);
    last = std::max(last, end);
  }
  return last;
}

}  // namespace

TEST_CASE("wgrad split: every row of every tile once, and every partial sum into its tile", "[kernels]") {
  const auto experts = GENERATE(from_range(split_tables()));
  const int m_tiles = GENERATE(1, 5), n_tiles = GENERATE(1, 3), num_sms = GENERATE(1, 3, 132), tiles = m_tiles * n_tiles;
  INFO("rows " << experts.num_rows() << ", experts " << experts.num_experts() << ", tiles " << tiles << ", SMs " << num_sms);
  const auto split = plan(experts, tiles, num_sms);
  REQUIRE(split.num_slots <= most_wgrad_slots(experts.num_rows(), experts.num_experts(), tiles, num_sms));
  using Kind = WgradPart::Kind;
  using Tile = std::tuple<int, int, int>;
  std::map<Tile, int> rows_done;            // up to this row, in order
  std::map<Tile, std::vector<int>> slots;   // of its pieces
  std::map<Tile, std::vector<int>> summed;  // its parts
  int next_slot = 0, not_pieces = 0;
  for (const auto& part : all_parts(experts, m_tiles, n_tiles, split)) {
    REQUIRE((part.m_tile >= 0 && part.m_tile < m_tiles && part.n_tile >= 0 && part.n_tile < n_tiles));
    const Tile tile{part.expert, part.m_tile, part.n_tile};
    const int first = experts.offsets.at(part.expert), end = experts.offsets.at(part.expert + 1);
    if (part.kind == Kind::kPiece) {
      REQUIRE(not_pieces == 0);  // what sums wait for comes first
      REQUIRE(part.slot == next_slot++);
      REQUIRE(part.piece == static_cast<int>(slots[tile].size()));
      REQUIRE(part.row == (part.piece ? rows_done.at(tile) : first));
      REQUIRE(part.row < part.row_end);
      REQUIRE(part.row_end <= end);
      REQUIRE(ceil_div(part.row_end - part.row, kWgradBlockRows) <= split.longest_piece);
      REQUIRE((part.row_end == end || (part.row_end - first) % kWgradBlockRows == 0));
      rows_done[tile] = part.row_end;
      slots[tile].push_back(part.slot);
      continue;
    }
    ++not_pieces;
    if (part.kind == Kind::kTile) {
      REQUIRE(part.num_pieces == 0);
      REQUIRE((part.row == first && part.row_end == end));
      REQUIRE(rows_done.emplace(tile, end).second);
    } else if (part.kind == Kind::kSum) {
      REQUIRE(part.row == part.row_end);
      REQUIRE(part.num_pieces == static_cast<int>(slots.at(tile).size()));
      for (int i = 0; i < part.num_pieces; ++i) REQUIRE(slots[tile][i] == part.slot + i * tiles);
      REQUIRE(part.piece == static_cast<int>(summed[tile].size()));
      summed[tile].push_back(part.piece);
    }
  }
  REQUIRE(next_slot == split.num_slots);
  REQUIRE(rows_done.size() == size_t(experts.num_experts()) * tiles);
  for (const auto& [tile, row] : rows_done) REQUIRE(row == experts.offsets.at(std::get<0>(tile) + 1));
  for (const auto& [tile, pieces] : slots) {
    REQUIRE(pieces.size() > 1);
    REQUIRE(summed[tile].size() == pieces.size());
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
    return makespan(all_parts(experts, shape.m_tiles, shape.n_tiles, split), num_sms);
  };
  const auto even = routed(shape.tokens, shape.num_experts, shape.top_k, false);
  REQUIRE(plan(even, tiles, num_sms).num_slots == 0);
  REQUIRE(plan(taken_by(shape.num_experts, rows, shape.num_experts), tiles, num_sms).num_slots == 0);
  const double random = time(even);
  const double skewed = time(routed(shape.tokens, shape.num_experts, shape.top_k, true)) / random;
  const double same = time(taken_by(shape.top_k, rows, shape.num_experts)) / random;
  const double one = time(taken_by(1, rows, shape.num_experts)) / random;
  UNSCOPED_INFO("skewed " << skewed << ", all tokens the same experts " << same << ", one expert " << one);
  CHECK(skewed <= 1.05);
  CHECK(same <= 1.1);
  CHECK(one <= 1.1);
}

}  // namespace scatterlm::kernels::test
