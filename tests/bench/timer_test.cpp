#include "lib/bench/timer.h"

#include <chrono>
#include <set>
#include <thread>

#include "tests/catch.h"

namespace scatterlm::bench {

TEST_CASE("timer: median and percentiles", "[timer]") {
  const auto one = spread_of({3});
  REQUIRE((one.median == 3 && one.p10 == 3 && one.p90 == 3));
  const auto even = spread_of({4, 1, 3, 2});
  REQUIRE(even.median == 2.5);
  std::vector<double> times;
  for (int i = 100; i >= 0; --i) times.push_back(i);
  const auto many = spread_of(times);
  REQUIRE((many.median == 50 && many.p10 == 10 && many.p90 == 90));
}

TEST_CASE("timer: number of rounds", "[timer]") {
  REQUIRE(num_rounds(0, 10) == 30);
  REQUIRE(num_rounds(0, 0.001) == 100);
  REQUIRE(num_rounds(0, 5000) == 10);
  REQUIRE(num_rounds(3, 10) == 3);
}

TEST_CASE("timer: every round prepares and runs each variant once, in changing order", "[timer]") {
  std::string log;
  const auto variant = [&](char name) {
    return Variant{.run = [&log, name] { log += name; }, .prepare = [&log, name] { log += char(name - 'a' + 'A'); }};
  };
  const auto spreads = time_interleaved({variant('a'), variant('b'), variant('c')}, 20, at::kCPU);
  REQUIRE(spreads.size() == 3);
  REQUIRE((log.size() % 6 == 0 && log.size() >= 6 * 20));
  std::set<std::string> orders;
  for (size_t i = 0; i < log.size(); i += 6) {
    auto round = log.substr(i, 6);
    REQUIRE((round[0] == round[1] - 'a' + 'A' && round[2] == round[3] - 'a' + 'A' && round[4] == round[5] - 'a' + 'A'));
    orders.insert(round);
    std::sort(round.begin(), round.end());
    REQUIRE(round == "ABCabc");
  }
  REQUIRE(orders.size() > 3);
}

TEST_CASE("timer: times are those of the variants", "[timer]") {
  const auto sleep = [](int ms) { return Variant{[=] { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }}; };
  const auto spreads = time_interleaved({sleep(4), sleep(1)}, 5, at::kCPU);
  REQUIRE((spreads[0].p10 >= 4 && spreads[1].p10 >= 1));
  REQUIRE(spreads[1].median < spreads[0].median);
}

}  // namespace scatterlm::bench
