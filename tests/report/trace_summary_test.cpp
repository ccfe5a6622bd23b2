#include "lib/report/trace_summary.h"

#include <nlohmann/json.hpp>

#include "tests/catch.h"

using namespace scatterlm;

namespace {

constexpr int64_t kMs = 1'000'000;
constexpr const char* kNccl = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

/// From and to in ms after some start.
TracedWork work(const char* name, int64_t from, int64_t to, int64_t lane = 7) {
  const int64_t start = 1'795'000'000'000 * kMs;
  return {.name = name, .begin_ns = start + from * kMs, .end_ns = start + to * kMs, .lane = lane};
}

Trace trace_of(std::vector<TracedWork> work) {
  return {
      .step = 12, .device = "NVIDIA H200", .wall_ms = 100, .work = std::move(work), .path = "runs/a/trace_step_00000012.json"};
}

double kernel_ms(const TraceSummary& summary, const std::string& name) {
  for (const auto& kernel : summary.kernels) {
    if (kernel.name == name) return kernel.ms;
  }
  return -1;
}

}  // namespace

TEST_CASE("a step without work is idle") {
  const auto summary = summarise(trace_of({}));
  REQUIRE(summary.busy_ms == 0);
  REQUIRE(summary.idle_ms == 100);
  REQUIRE(summary.kernels.empty());
}

TEST_CASE("time that several kernels share counts once") {
  // disjoint; touching; partly over each other; one inside another and ended before it; in no order
  const auto summary = summarise(trace_of({work("d", 60, 70, 1), work("a", 0, 10), work("b", 20, 30), work("c", 30, 40),
                                           work("c", 50, 61), work("e", 62, 65, 2), work("f", 66, 80, 2)}));
  REQUIRE(summary.busy_ms == 10 + 20 + 30);
  REQUIRE(summary.compute_ms == summary.busy_ms);
  REQUIRE(summary.idle_ms == 40);
  REQUIRE(summary.collectives_ms == 0);
  REQUIRE(summary.exposed_ms == 0);
}

TEST_CASE("a collective is exposed where nothing computes beside it") {
  const auto name = GENERATE(as<std::string>(), kNccl, "Memcpy PtoP (Device -> Device)");
  const auto [end, exposed] = GENERATE(table<int64_t, double>({{40, 0}, {50, 0}, {60, 10}}));
  const auto summary = summarise(trace_of({work("gemm", 0, 30), work("gemm", 30, 50), work(name.c_str(), 10, end, 20)}));
  REQUIRE(summary.collectives_ms == static_cast<double>(end - 10));
  REQUIRE(summary.compute_ms == 50);
  REQUIRE(summary.exposed_ms == exposed);
  REQUIRE(summary.busy_ms == 50 + exposed);
}

TEST_CASE("what runs in the stream of a collective is one, such as a copy of the own part") {
  const auto summary = summarise(
      trace_of({work("gemm", 0, 30), work("Memcpy PtoP (Device -> Device)", 10, 20, 20),
                work("Memcpy DtoD (Device -> Device)", 20, 40, 20), work("Memcpy DtoD (Device -> Device)", 40, 50, 7)}));
  REQUIRE(summary.collectives_ms == 30);
  REQUIRE(summary.compute_ms == 40);
  REQUIRE(summary.exposed_ms == 10);
}

TEST_CASE("a collective between kernels is exposed in full, and NCCL's kernels are known by their names") {
  for (const char* name : {kNccl, "ncclKernel_AllReduce", "void ncclDevKernel_Generic(x)"}) {
    const auto summary = summarise(trace_of({work("gemm", 0, 10), work(name, 20, 40, 20), work("gemm", 50, 60)}));
    REQUIRE(summary.exposed_ms == 20);
    REQUIRE(summary.idle_ms == 60);
  }
}

TEST_CASE("an operator's time is without that of operators inside it") {
  const auto summary =
      summarise(trace_of({work("matmul", 0, 45), work("linear", 0, 50), work("mm", 10, 40), work("add", 45, 50),
                          work("linear", 60, 70), work("mm", 0, 50, 8)}));  // the last in another thread
  REQUIRE(kernel_ms(summary, "linear") == 50 - 45 - 5 + 10);
  REQUIRE(kernel_ms(summary, "matmul") == 15);
  REQUIRE(kernel_ms(summary, "mm") == 30 + 50);
  REQUIRE(kernel_ms(summary, "add") == 5);
  REQUIRE(summary.kernels.front().name == "mm");
  REQUIRE(summary.kernels.front().calls == 2);
  REQUIRE(summary.busy_ms == 60);
}

TEST_CASE("the file has the longest kernels, the line the overlap") {
  std::vector<TracedWork> many;
  for (int64_t i = 0; i < 30; i++) many.push_back(work(("kernel" + std::to_string(i)).c_str(), 0, i + 1, i));
  many.push_back(work(kNccl, 25, 45, 99));
  const auto trace = trace_of(many);
  const auto summary = summarise(trace);
  const auto json = nlohmann::json::parse(trace_json(trace, summary));
  REQUIRE(json["step"] == 12);
  REQUIRE(json["device"] == "NVIDIA H200");
  REQUIRE(json["wall_ms"] == 100);
  REQUIRE(json["busy_ms"] == 45);
  REQUIRE(json["exposed_ms"] == 15);
  REQUIRE(json["kernels"].size() == 20);
  REQUIRE(json["kernels"][0] == nlohmann::json{{"name", "kernel29"}, {"calls", 1}, {"ms", 30}, {"percent", 30}});
  REQUIRE(trace_line(trace, summary) ==
          "step 12 traced: 100.0 ms, GPU busy 45 %, collectives 20.0 ms, of which 15.0 ms exposed; "
          "runs/a/trace_step_00000012.json");
}

TEST_CASE("the line of a CPU says nothing of collectives") {
  auto trace = trace_of({work("aten::mm", 0, 93)});
  trace.device = "CPU";
  REQUIRE(trace_line(trace, summarise(trace)) == "step 12 traced: 100.0 ms, CPU busy 93 %; runs/a/trace_step_00000012.json");
}
