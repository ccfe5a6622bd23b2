#include "lib/report/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lib/train/flops.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "tests/catch.h"
#include "tests/report/example.h"

using namespace scatterlm;
namespace fs = std::filesystem;

namespace {

const ExecutionSetup kCpu{.device = at::kCPU, .dtype = at::kFloat, .deterministic = true};

/// A run folder and a console that vanish with the test.
struct Run {
  fs::path dir = fs::temp_directory_path() / ("scatterlm_report_" + std::to_string(getpid())) / "runs" / "tiny";
  std::FILE* console = std::tmpfile();

  Run() {
    fs::remove_all(dir.parent_path().parent_path());
    fs::create_directories(dir);
  }
  ~Run() {
    std::fclose(console);
    fs::remove_all(dir.parent_path().parent_path());
  }
  std::string console_text() const {
    std::rewind(console);
    std::string text;
    for (int c; (c = std::fgetc(console)) != EOF;) text += static_cast<char>(c);
    return text;
  }
  std::string event_text() const {
    std::string text;
    for (const auto& entry : fs::directory_iterator(dir / "tensorboard")) text += read_file(entry.path().string());
    return text;
  }
};

}  // namespace

TEST_CASE("a step goes to console, metrics and TensorBoard with its rates") {
  const Run run;
  Config config;
  config.train.global_batch_tokens = 2048;
  StepReport step = example_report(610);
  step.step_ms = 500;
  step.val_loss = 2.25;
  Report report(run.dir.string(), config, kCpu, 0, run.console);
  report.step(step);
  report.summary();

  const auto json = nlohmann::json::parse(read_file((run.dir / "metrics.jsonl").string()));
  REQUIRE(json["tok_s"].get<double>() == 4096);
  REQUIRE(json["mem_gib"].get<double>() > 0.01);
  REQUIRE(json["mfu"].is_null());

  const double gflops = 4096 * flops_per_token(config.model, config.train.sequence_length) / 1e9;
  const std::string console = run.console_text();
  REQUIRE_THAT(console, ContainsSubstring(" | 4.1k tok/s | " + fmt::format("{:.1f} GFLOP/s | ", gflops)));
  REQUIRE_THAT(console, ContainsSubstring(
                            "\nvalidation 610/610 | loss 2.2500 | perplexity 9.49\ndone 610/610 | 2.5M tokens | loss 2.8123 | "
                            "validation 2.2500 | mem "));
  REQUIRE(console.ends_with("s | " + run.dir.string() + "\n"));

  const std::string events = run.event_text();
  for (const char* tag :
       {"train/loss", "train/aux_loss", "train/z_loss", "train/grad_norm", "train/lr", "train/step_ms", "train/tok_s",
        "train/mem_gib", "validation/loss", "router/layers.1.attention/entropy", "router/layers.1.mlp/load_max_mean"}) {
    REQUIRE_THAT(events, ContainsSubstring(tag));
  }
  REQUIRE(events.find("train/mfu") == std::string::npos);
}

TEST_CASE("TensorBoard can be left out, and a resumed run forgets later steps") {
  const Run run;
  Config config;
  config.log.tensorboard = false;
  {
    Report report(run.dir.string(), config, kCpu, 0, run.console);
    report.step(example_report(10));
    report.step(example_report(20));
  }
  REQUIRE(!fs::exists(run.dir / "tensorboard"));
  const Report resumed(run.dir.string(), config, kCpu, 10, run.console);
  REQUIRE(nlohmann::json::parse(read_file((run.dir / "metrics.jsonl").string()))["step"] == 10);
}

TEST_CASE("a run without a step left says so") {
  const Run run;
  Report(run.dir.string(), Config{}, kCpu, 610, run.console).summary();
  REQUIRE(run.console_text() == run.dir.string() + " is complete: nothing left to train\n");
}
