// The tile schedules, on the host as on the device.
#include "kernels/grouped_gemm/tile_scheduler.h"

#include <map>
#include <tuple>

#include "tests/catch.h"
#include "tests/kernels/cases.h"

namespace scatterlm::kernels::test {
namespace {

std::vector<Experts> tables() {
  auto all = expert_tables();
  all.push_back(Experts({0, 0, 0}));
  all.push_back(Experts({100000, 3}));
  std::vector<int> many(1024, 0);
  for (size_t i = 0; i < many.size(); i += 3) many[i] = int(i) % 400;
  all.push_back(Experts(many));
  return all;
}

}  // namespace

TEST_CASE("row schedule: every tile of every expert once", "[kernels]") {
  const auto experts = GENERATE(from_range(tables()));
  const int n_tiles = GENERATE(1, 3, 8), blocks = GENERATE(1, 7, 132);
  std::map<std::tuple<int, int, int>, int> seen;  // expert, row, column tile
  for (int block = 0; block < blocks; ++block) {
    RowSchedule schedule(experts.offsets.data(), experts.tiles.data(), experts.num_experts(), n_tiles);
    RowTile tile;
    for (int number = block; schedule.find(number, tile); number += blocks) {
      REQUIRE(tile.row_end == experts.offsets[tile.expert + 1]);
      REQUIRE((tile.row - experts.offsets[tile.expert]) % kTileRows == 0);
      REQUIRE(tile.row >= experts.offsets[tile.expert]);
      REQUIRE(tile.row < tile.row_end);
      REQUIRE(tile.n_tile >= 0);
      REQUIRE(tile.n_tile < n_tiles);
      ++seen[{tile.expert, tile.row, tile.n_tile}];
    }
  }
  REQUIRE(seen.size() == size_t(experts.num_tiles()) * n_tiles);
  for (const auto& [tile, times] : seen) REQUIRE(times == 1);
}

TEST_CASE("row schedule: blocks that run together share columns of the weight", "[kernels]") {
  const Experts experts({100000});
  RowSchedule schedule(experts.offsets.data(), experts.tiles.data(), 1, 8);
  RowTile tile;
  for (int i = 0; i < RowSchedule::kStrip; ++i) {
    REQUIRE(schedule.find(i, tile));
    REQUIRE(tile.n_tile == 0);
    REQUIRE(tile.row == i * kTileRows);
  }
  REQUIRE(schedule.find(RowSchedule::kStrip, tile));
  REQUIRE(tile.n_tile == 1);
  REQUIRE(tile.row == 0);
}

TEST_CASE("wgrad schedule: every tile once, empty experts too", "[kernels]") {
  const auto experts = GENERATE(from_range(tables()));
  const int m_tiles = GENERATE(1, 5), n_tiles = GENERATE(1, 3), blocks = GENERATE(1, 132);
  std::map<std::tuple<int, int, int>, int> seen;
  for (int block = 0; block < blocks; ++block) {
    WgradSchedule schedule(experts.offsets.data(), experts.num_experts(), m_tiles, n_tiles);
    WgradTile tile;
    for (int number = block; schedule.find(number, tile); number += blocks) {
      REQUIRE(tile.row == experts.offsets[tile.expert]);
      REQUIRE(tile.row_end == experts.offsets[tile.expert + 1]);
      ++seen[{tile.expert, tile.m_tile, tile.n_tile}];
    }
  }
  REQUIRE(seen.size() == size_t(experts.num_experts()) * m_tiles * n_tiles);
  for (const auto& [tile, times] : seen) {
    REQUIRE(times == 1);
    REQUIRE(std::get<1>(tile) < m_tiles);
    REQUIRE(std::get<2>(tile) < n_tiles);
  }
}

}  // namespace scatterlm::kernels::test
