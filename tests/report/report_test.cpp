#include "lib/report/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/nn/model_size.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "tests/catch.h"
#include "tests/report/example.h"
#include "tests/terminal.h"

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
  step.val_bpb = 3.25;
  step.tasks = {{.name = "hellaswag_val", .acc = 0.5, .acc_norm = 0.25}};
  Report report(run.dir.string(), config, kCpu, 0, run.console);
  report.step(step);
  report.summary();

  const auto json = nlohmann::json::parse(read_file((run.dir / "metrics.jsonl").string()));
  REQUIRE(json["tok_s"].get<double>() == 4096);
  REQUIRE(json["mem_gib"].get<double>() > 0.01);
  REQUIRE(json["mfu"].is_null());

  const double gflops = 4096 * nn::flops_per_token(config.model, config.train.sequence_length) / 1e9;
  const std::string console = run.console_text();
  REQUIRE_THAT(console, ContainsSubstring(" | 4.1k tok/s | " + fmt::format("{:.1f} GFLOP/s | ", gflops)));
  REQUIRE_THAT(console,
               ContainsSubstring(
                   "\nvalidation 610/610 | loss 2.2500 | perplexity 9.49 | bpb 3.2500\n"
                   "task 610/610 | hellaswag_val | acc 0.5000 | acc_norm 0.2500\ndone 610/610 | 2.5M tokens | loss 2.8123 | "
                   "validation 2.2500 | mem "));
  REQUIRE(console.ends_with("s | " + run.dir.string() + "\n"));

  const std::string events = run.event_text();
  for (const char* tag :
       {"train/loss", "train/aux_loss", "train/z_loss", "train/grad_norm", "train/lr", "train/step_ms", "train/tok_s",
        "train/mem_gib", "validation/loss", "validation/bpb", "task/hellaswag_val/acc", "task/hellaswag_val/acc_norm",
        "router/layers.1.attention/entropy", "router/layers.1.mlp/load_max_mean"}) {
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

namespace {

/// Two routers of 16 experts, of which a token takes 4.
StepReport report_of_loads(int64_t step, double attention_load, double mlp_load) {
  StepReport report = example_report();
  report.step = step;
  report.routers[0].load_max_mean = attention_load;
  report.routers[1].load_max_mean = mlp_load;
  for (auto& router : report.routers) router.load_limit = 4;
  return report;
}

/// What a callback writes to stderr.
std::string stderr_of(const std::function<void()>& call) {
  std::FILE* file = std::tmpfile();
  const int kept = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  call();
  std::fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("a collapse is said once") {
  const Run run;
  Report report(run.dir.string(), Config{}, kCpu, 0, run.console);
  const auto text = stderr_of([&] {
    report.step(report_of_loads(1000, 1, 1));
    report.step(report_of_loads(1010, 1, 4));
    report.step(report_of_loads(1060, 1, 4));
    report.step(report_of_loads(1110, 4, 4));
  });
  REQUIRE_THAT(text, ContainsSubstring("warning: step 1060: ") && ContainsSubstring("now the router of layers.1.mlp sends"));
  REQUIRE(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("without a load balancing loss none is shown, and metrics keep their key") {
  const Run run;
  Config config;
  config.model.router.balance = Balance::kBias;
  Report(run.dir.string(), config, kCpu, 0, run.console).step(example_report());
  REQUIRE(run.console_text().find("aux") == std::string::npos);
  REQUIRE(run.event_text().find("aux_loss") == std::string::npos);
  REQUIRE(nlohmann::json::parse(read_file((run.dir / "metrics.jsonl").string()))["aux_loss"] == 2.0312);
}

TEST_CASE("a terminal shows progress from the start, and after steps") {
  const Run run;
  const test::Terminal terminal(80);
  Config config;
  config.train.steps = 50;
  Report report(run.dir.string(), config, kCpu, 7, terminal.file());
  REQUIRE(terminal.drain() == "\rtraining 7/50\x1b[K");
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  report.progress(9);
  report.progress(10);  // too soon
  const auto text = terminal.drain();
  REQUIRE(text.starts_with("\rtraining 9/50 | "));
  REQUIRE_THAT(text, ContainsSubstring(" tok/s | eta "));
  REQUIRE(std::count(text.begin(), text.end(), '\r') == 1);
}
