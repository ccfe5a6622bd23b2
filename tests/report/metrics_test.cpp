#include "lib/report/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/util/file_error.h"
#include "tests/catch.h"
#include "tests/report/example.h"

using namespace scatterlm;

namespace {

/// A path that is free at the start and at the end of a test.
struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() / ("scatterlm_metrics_" + std::to_string(getpid()))).string();
  TemporaryFile() { std::filesystem::remove(path); }
  ~TemporaryFile() { std::filesystem::remove(path); }

  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  void append(const std::string& text) const { std::ofstream(path, std::ios::app) << text; }
};

std::string lines(std::initializer_list<int64_t> steps) {
  std::string text;
  for (const int64_t step : steps) text += metrics_line(example_report(step)) + "\n";
  return text;
}

}  // namespace

TEST_CASE("a metrics line has all keys") {
  StepReport report = example_report();
  report.routers.pop_back();
  report.comm = CommTimes{.exposed_ms = 1.5, .reduce_scatter = {.ms = 4, .link_bytes = 2e9}, .all_gather = {}};
  REQUIRE(
      metrics_line(report) ==
      R"({"step":100,"tokens":409600,"loss":2.81234,"aux_loss":2.0312,"z_loss":7.5,"grad_norm":0.8312,"lr":0.00299,)"
      R"("step_ms":182.4,"tok_s":22456.0,"mfu":null,"mem_gib":0.91,"alloc_retries":0,"load_max_mean":1.42,"val_loss":null,"val_bpb":null,"nonfinite_steps":0,"save_stall_ms":0.0,)"
      R"("comm":{"exposed_ms":1.5,"reduce_scatter_ms":4.0,"reduce_scatter_gbps":500.0,"all_gather_ms":0.0,"all_gather_gbps":null},)"
      R"("routers":[{"name":"layers.1.attention","load_max_mean":1.1,"dead_experts":0,"entropy":2.0,"drop":0.0,"fill":0.0,)"
      R"("aux_loss":1.01,"z_loss":3.0}]})");
}

TEST_CASE("numbers of a metrics line read back exactly; what is not finite is null") {
  StepReport report = example_report();
  report.loss = 0.1 + 0.2;
  report.lr = std::numeric_limits<double>::denorm_min();
  report.grad_norm = std::numeric_limits<double>::infinity();
  report.aux_loss = std::nan("");
  report.mfu = 1.0 / 3;
  report.val_loss = std::nan("");
  const auto json = nlohmann::json::parse(metrics_line(report));
  REQUIRE(json["loss"].get<double>() == report.loss);
  REQUIRE(json["lr"].get<double>() == report.lr);
  REQUIRE(json["mfu"].get<double>() == *report.mfu);
  REQUIRE(json["grad_norm"].is_null());
  REQUIRE(json["aux_loss"].is_null());
  REQUIRE(json["val_loss"].is_null());
  REQUIRE(json["comm"].is_null());
}

TEST_CASE("tasks of an evaluation have keys of their own") {
  StepReport report = example_report();
  report.tasks = {{.name = "a b", .examples = 9, .acc = 0.5, .acc_stderr = 0.125, .acc_norm = 0.25, .acc_norm_stderr = 0.0625}};
  const auto json = nlohmann::json::parse(metrics_line(report));
  REQUIRE(json["task/a b/acc"] == 0.5);
  REQUIRE(json["task/a b/acc_stderr"] == 0.125);
  REQUIRE(json["task/a b/acc_norm"] == 0.25);
  REQUIRE(json["task/a b/acc_norm_stderr"] == 0.0625);
}

TEST_CASE("lines are there as soon as they are written") {
  const TemporaryFile file;
  MetricsWriter writer(file.path, 0);
  writer.write(example_report(10));
  REQUIRE(file.text() == lines({10}));
  writer.write(example_report(20));
  REQUIRE(file.text() == lines({10, 20}));
}

TEST_CASE("a resumed file has neither gaps nor repeats") {
  const TemporaryFile file;
  {
    MetricsWriter writer(file.path, 0);
    for (const int64_t step : {10, 20, 30, 40}) writer.write(example_report(step));
  }
  SECTION("steps after the checkpoint are taken again") {
    MetricsWriter writer(file.path, 20);
    REQUIRE(file.text() == lines({10, 20}));
    writer.write(example_report(30));
    REQUIRE(file.text() == lines({10, 20, 30}));
  }
  SECTION("a checkpoint between two lines") {
    const MetricsWriter writer(file.path, 35);
    REQUIRE(file.text() == lines({10, 20, 30}));
  }
  SECTION("nothing to remove") {
    const MetricsWriter writer(file.path, 40);
    REQUIRE(file.text() == lines({10, 20, 30, 40}));
  }
  SECTION("a fresh start forgets everything") {
    const MetricsWriter writer(file.path, 0);
    REQUIRE(file.text().empty());
  }
  SECTION("a torn last line, also one that is valid but has no end") {
    const std::string torn = GENERATE(as<std::string>(), R"({"step":5,"lo)", R"({"step":5})");
    file.append(torn);
    const MetricsWriter writer(file.path, 40);
    REQUIRE(file.text() == lines({10, 20, 30, 40}));
  }
  SECTION("what is no line of metrics") {
    file.append("nonsense\n[1]\n{\"step\":\"5\"}\n{}\n\n");
    const MetricsWriter writer(file.path, 40);
    REQUIRE(file.text() == lines({10, 20, 30, 40}));
  }
}

TEST_CASE("a file that cannot be written is an error that names it") {
  REQUIRE_THROWS_WITH(MetricsWriter("/nowhere/metrics.jsonl", 0),
                      "/nowhere/metrics.jsonl: cannot write: No such file or directory");
  MetricsWriter writer("/dev/full", 0);
  REQUIRE_THROWS_WITH(writer.write(example_report()), "/dev/full: cannot write: No space left on device");
}

TEST_CASE("a full disk costs a whole line, and the file goes on behind the one before") {
  const TemporaryFile file;
  MetricsWriter writer(file.path, 0);
  writer.write(example_report(1));
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit tight{file.text().size() + 10, old.rlim_max};  // stands for it
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tight);
  REQUIRE_THROWS_AS(writer.write(example_report(2)), StorageError);
  setrlimit(RLIMIT_FSIZE, &old);
  writer.write(example_report(3));
  REQUIRE(file.text() == lines({1, 3}));
}
