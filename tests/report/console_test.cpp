#include "lib/report/console.h"

#include <cmath>

#include "tests/catch.h"
#include "tests/report/example.h"
#include "tests/terminal.h"

using namespace scatterlm;

namespace {

constexpr int64_t kPipe = 1 << 20;

/// What a callback prints to a file, which is no terminal.
template <class Print>
std::string printed(Print print) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file);
  print(file);
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("a pipe gets every field, in an order that scripts rely on") {
  REQUIRE(
      step_line(example_report(), kPipe) ==
      "step 100/610 | loss 2.8123 | aux 2.031 | grad 0.831 | lr 2.99e-03 | 182 ms | 22.5k tok/s | 95.4 GFLOP/s | mem 0.9 GiB | "
      "max load 1.42 | eta 1m33s | z 7.500 | max load by layer 1.10-1.42 | dead 1 | entropy 1.75");
}

TEST_CASE("narrow terminals lose the least important fields") {
  REQUIRE(step_line(example_report(), 215) == step_line(example_report(), kPipe));
  REQUIRE(
      step_line(example_report(), 146) ==
      "step 100/610 | loss 2.8123 | aux 2.031 | grad 0.831 | lr 2.99e-03 | 182 ms | 22.5k tok/s | 95.4 GFLOP/s | mem 0.9 GiB | "
      "max load 1.42 | eta 1m33s");
  REQUIRE(step_line(example_report(), 83) ==
          "step 100/610 | loss 2.8123 | grad 0.831 | 22.5k tok/s | max load 1.42 | eta 1m33s");
  REQUIRE(step_line(example_report(), 39) == "step 100/610 | loss 2.8123 | eta 1m33s");
  for (int64_t width = 0; width < 220; ++width) REQUIRE(std::ssize(step_line(example_report(), width)) <= width);
}

TEST_CASE("what a step does not have is not shown") {
  StepReport report = example_report(7);
  report.routers.clear();
  report.mfu = 0.4123;
  REQUIRE(step_line(report, kPipe) ==
          "step 7/610   | loss 2.8123 | grad 0.831 | lr 2.99e-03 | 182 ms | 22.5k tok/s | mfu 41.2% | mem 0.9 GiB | eta 1m50s");
}

TEST_CASE("steps that were skipped and numbers that are none are shown") {
  StepReport report = example_report();
  report.nonfinite_steps = 3;
  report.loss = std::nan("");
  REQUIRE_THAT(step_line(report, 79), ContainsSubstring("step 100/610 | loss nan | skipped 3 | "));
}

TEST_CASE("fast and large machines") {
  StepReport report = example_report();
  report.step_ms = 4.56;
  report.tok_s = 1.2e6;
  report.flops_per_token = 4e8;
  REQUIRE_THAT(step_line(report, kPipe), ContainsSubstring(" | 4.6 ms | 1.20M tok/s | 480.0 TFLOP/s | "));
}

TEST_CASE("an evaluation adds its line") {
  StepReport report = example_report();
  report.val_loss = 2.5;
  REQUIRE(validation_line(report) == "validation 100/610 | loss 2.5000 | perplexity 12.18");
  const std::string text = printed([&](std::FILE* file) { Console(file).step(report); });
  REQUIRE(text == step_line(report, kPipe) + "\n" + validation_line(report) + "\n");
  report.val_bpb = 3.60674;
  REQUIRE(validation_line(report) == "validation 100/610 | loss 2.5000 | perplexity 12.18 | bpb 3.6067");
  report.tasks = {{.name = "hellaswag_val", .acc = 0.28594, .acc_norm = 0.2955}};
  REQUIRE(task_line(report, report.tasks[0]) == "task 100/610 | hellaswag_val | acc 0.2859 | acc_norm 0.2955");
  REQUIRE(printed([&](std::FILE* file) { Console(file).evaluation(report); }) ==
          validation_line(report) + "\n" + task_line(report, report.tasks[0]) + "\n");
  report.val_loss.reset();
  report.tasks.clear();
  REQUIRE(printed([&](std::FILE* file) { Console(file).step(report); }) == step_line(report, kPipe) + "\n");
}

TEST_CASE("an auxiliary loss that the training does not have is not shown") {
  StepReport report = example_report();
  report.balanced_by_loss = false;
  REQUIRE(step_line(report, kPipe).find("aux") == std::string::npos);
  REQUIRE_THAT(step_line(report, kPipe), ContainsSubstring("loss 2.8123 | grad 0.831"));
  REQUIRE_THAT(step_line(report, kPipe), ContainsSubstring("max load 1.42"));
}

TEST_CASE("progress between two step lines") {
  const TrainingProgress progress{.step = 37, .total_steps = 610, .step_ms = 200, .tok_s = 22456};
  REQUIRE(progress_line(progress, 79) == "training 37/610 | 22.5k tok/s | eta 1m55s");
  REQUIRE(progress_line(progress, 30) == "training 37/610 | eta 1m55s");
  REQUIRE(progress_line({.total_steps = 610}, 79) == "training 0/610");
  REQUIRE(printed([&](std::FILE* file) { Console(file).progress(progress); }).empty());
}

TEST_CASE("on a terminal progress is one line that any other line replaces") {
  const test::Terminal terminal(80);
  {
    Console console(terminal.file());
    console.progress({.step = 1, .total_steps = 610});
    console.progress({.step = 2, .total_steps = 610});
    REQUIRE(terminal.drain() == "\rtraining 1/610\x1b[K\rtraining 2/610\x1b[K");
    console.print("validation");
    REQUIRE(terminal.drain() == "\r\x1b[Kvalidation\r\n");
    console.print("done");
    REQUIRE(terminal.drain() == "done\r\n");
    console.progress({.step = 3, .total_steps = 610});
    terminal.drain();
  }
  REQUIRE(terminal.drain() == "\r\x1b[K");  // what follows, an error for example, starts on an empty line
}

TEST_CASE("phases tell their time and result") {
  const std::string text = printed([](std::FILE* file) {
    Phases phases(file);
    phases.done("device", "CPU");
    phases.done("model", "1.2M parameters");
  });
  // Times differ, but have two decimals.
  const size_t second = text.find('\n') + 1;
  REQUIRE(text.substr(0, second).ends_with(" s] device: CPU\n"));
  REQUIRE(text.substr(second).ends_with(" s] model: 1.2M parameters\n"));
  REQUIRE(text[second] == '[');
  REQUIRE(text.substr(text.find('.'), 6).ends_with(" s]"));
}
