#include "lib/report/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lib/util/escape.h"
#include "lib/util/output.h"
#include "lib/util/terminal.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kPlain = "\x1b[0m";

/// Padded to the width of "total/total", so that the columns of successive lines agree.
std::string step_of_total(const StepReport& report) {
  const std::string total = std::to_string(report.total_steps);
  return fmt::format("{:<{}}", fmt::format("{}/{}", report.step, total), 2 * total.size() + 1);
}

/// With a fixed number of digits after the point: a column of them is calm.
std::string tokens_per_second(double rate) {
  if (rate < 1e3) return fmt::format("{:.0f} tok/s", rate);
  return rate < 1e6 ? fmt::format("{:.1f}k tok/s", rate / 1e3) : fmt::format("{:.2f}M tok/s", rate / 1e6);
}

std::string milliseconds(double ms) { return ms < 100 ? fmt::format("{:.1f} ms", ms) : fmt::format("{:.0f} ms", ms); }

std::string utilisation(const StepReport& report) {
  if (report.mfu) return fmt::format("mfu {:.1f}%", 100 * *report.mfu);
  const double flops = report.tok_s * report.flops_per_token;
  return flops < 1e12 ? fmt::format("{:.1f} GFLOP/s", flops / 1e9) : fmt::format("{:.1f} TFLOP/s", flops / 1e12);
}

double seconds_left(const StepReport& report) {
  return static_cast<double>(report.total_steps - report.step) * report.step_ms / 1000;
}

/// Fields that only a wide terminal has room for.
void add_router_details(const StepReport& report, std::vector<LineField>& fields) {
  const auto [least, most] = std::ranges::minmax(report.routers, {}, &RouterReport::load_max_mean);
  int64_t dead = 0;
  double entropy = 0;
  for (const RouterReport& router : report.routers) {
    dead += router.dead_experts;
    entropy += router.entropy / static_cast<double>(report.routers.size());
  }
  fields.push_back({fmt::format("z {:.3f}", report.z_loss), 13});
  fields.push_back({fmt::format("max load by layer {:.2f}-{:.2f}", least.load_max_mean, most.load_max_mean), 11});
  fields.push_back({fmt::format("dead {}", dead), 10});
  fields.push_back({fmt::format("entropy {:.2f}", entropy), 12});
}

/// Values stand out where separators are dim.
std::string dim_separators(const std::string& line) {
  std::string dimmed;
  for (const char c : line) dimmed += c == '|' ? fmt::format("{}|{}", kDim, kPlain) : std::string(1, c);
  return dimmed;
}

}  // namespace

std::string step_line(const StepReport& report, int64_t width) {
  const bool routed = !report.routers.empty();
  std::vector<LineField> fields = {{"step " + step_of_total(report), 0}, {fmt::format("loss {:.4f}", report.loss), 0}};
  if (report.nonfinite_steps > 0) fields.push_back({fmt::format("skipped {}", report.nonfinite_steps), 1});
  if (routed && report.balanced_by_loss) fields.push_back({fmt::format("aux {:.3f}", report.aux_loss), 5});
  fields.push_back({fmt::format("grad {:.3f}", report.grad_norm), 4});
  fields.push_back({fmt::format("lr {:.2e}", report.lr), 6});
  fields.push_back({milliseconds(report.step_ms), 7});
  fields.push_back({tokens_per_second(report.tok_s), 2});
  fields.push_back({utilisation(report), 8});
  fields.push_back({fmt::format("mem {:.1f} GiB", report.mem_gib), 9});
  if (routed) fields.push_back({fmt::format("max load {:.2f}", report.load_max_mean), 3});
  fields.push_back({fmt::format("eta {}", format_duration(seconds_left(report))), 1});
  if (routed) add_router_details(report, fields);
  return fit_line(std::move(fields), width);
}

std::string validation_line(const StepReport& report) {
  return fmt::format("validation {} | loss {:.4f} | perplexity {:.2f}{}", step_of_total(report), *report.val_loss,
                     std::exp(*report.val_loss), report.val_bpb ? fmt::format(" | bpb {:.4f}", *report.val_bpb) : "");
}

std::string task_line(const StepReport& report, const TaskResult& task) {
  return fmt::format("task {} | {} | acc {:.4f} | acc_norm {:.4f}", step_of_total(report), task.name, task.acc, task.acc_norm);
}

std::string progress_line(const TrainingProgress& progress, int64_t width) {
  std::vector<LineField> fields = {{fmt::format("training {}/{}", progress.step, progress.total_steps), 0}};
  if (progress.step_ms > 0) {
    const double left = static_cast<double>(progress.total_steps - progress.step) * progress.step_ms / 1000;
    fields.push_back({tokens_per_second(progress.tok_s), 2});
    fields.push_back({fmt::format("eta {}", format_duration(left)), 1});
  }
  return fit_line(std::move(fields), width);
}

Console::~Console() { clear_progress(); }

void Console::print(const std::string& line) {
  clear_progress();
  print_or_warn(out_, line + "\n");
}

void Console::progress(const TrainingProgress& progress) {
  const auto columns = terminal_width(fileno(out_));
  if (!columns) return;
  std::fputs(fmt::format("\r{}\x1b[K", progress_line(progress, *columns - 1)).c_str(), out_);
  std::fflush(out_);
  progress_shown_ = true;
}

void Console::clear_progress() {
  if (!progress_shown_) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
  progress_shown_ = false;
}

void Console::step(const StepReport& report) {
  const int fd = fileno(out_);
  const auto columns = terminal_width(fd);
  const std::string line = step_line(report, columns ? *columns - 1 : kNoLimit);
  print(wants_colour(fd) ? dim_separators(line) : line);
  evaluation(report);
}

void Console::evaluation(const StepReport& report) {
  const bool colour = wants_colour(fileno(out_));
  const auto print_bold = [&](const std::string& line) { print(colour ? kBold + line + kPlain : line); };
  if (report.val_loss) print_bold(validation_line(report));
  for (const TaskResult& task : report.tasks) print_bold(task_line(report, task));
}

void Phases::done(const std::string& phase, const std::string& result) {
  const Clock::time_point now = Clock::now();
  console_.print(
      fmt::format("[{:.2f} s] {}: {}", std::chrono::duration<double>(now - last_).count(), phase, escape_control(result)));
  last_ = now;
}

}  // namespace scatterlm
