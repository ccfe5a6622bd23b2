#include "lib/report/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "lib/config/load.h"
#include "lib/report/trace_summary.h"
#include "lib/train/training_plan.h"
#include "lib/util/file.h"
#include "lib/util/file_error.h"
#include "lib/util/gpu.h"
#include "lib/util/log/log.h"
#include "lib/util/memory.h"
#include "lib/util/text.h"

namespace scatterlm {

std::optional<PeakFlops> peak_of(const ExecutionSetup& numerics) {
  if (!numerics.device.is_cuda() || numerics.dtype != at::kBFloat16) return std::nullopt;
  return peak_bfloat16(gpus().at(static_cast<size_t>(numerics.device.index())).name);
}

std::string summary_line(const StepReport& last, double seconds, const std::string& run_dir) {
  const std::string validation = last.val_loss ? fmt::format(" | validation {:.4f}", *last.val_loss) : "";
  return fmt::format("done {}/{} | {} tokens | loss {:.4f}{} | mem {:.1f} GiB | {} | {}", last.step, last.total_steps,
                     format_count(static_cast<double>(last.tokens)), last.loss, validation, last.mem_gib,
                     format_duration(seconds), run_dir);
}

Report::Report(std::string run_dir, const Config& config, const ExecutionSetup& numerics, int64_t resume_step, std::FILE* out)
    : run_dir_(std::move(run_dir)),
      device_(numerics.device),
      balanced_by_loss_(config.model.router.balance == Balance::kAux),
      router_health_(config),
      tokens_per_step_(static_cast<double>(config.train.global_batch_tokens)),
      flops_per_token_(nn::flops_per_token(config.model, config.train.sequence_length)),
      total_steps_(total_steps(config.train)),
      console_(out),
      metrics_(run_dir_ + "/metrics.jsonl", resume_step),
      first_step_(resume_step) {
  if (config.log.tensorboard) tensorboard_.emplace(run_dir_ + "/tensorboard", resume_step);
  if (const auto peak = peak_of(numerics)) {
    peak_flops_ = peak->flops * static_cast<double>(numerics.ranks);
    console_.print(fmt::format("mfu is relative to {:.0f} TFLOP/s in bfloat16 ({})", peak->flops / 1e12, peak->basis));
  }
  if (device_.is_cuda()) planned_gib_ = planned_memory(config, numerics.dtype, numerics.ranks) / (1 << 30);
  progress(resume_step);
}

void Report::step(StepReport report) {
  report.tok_s = 1000 * tokens_per_step_ / report.step_ms;
  report.flops_per_token = flops_per_token_;
  if (peak_flops_) report.mfu = report.tok_s * flops_per_token_ / *peak_flops_;
  report.mem_gib = peak_memory_gib(device_);
  report.alloc_retries = allocator_retries(device_);
  report.balanced_by_loss = balanced_by_loss_;
  console_.step(report);
  write_figures(report);
  if (planned_gib_ && report.step - first_step_ >= 2) {
    log_info(measured_and_planned(report.mem_gib, *planned_gib_));
    planned_gib_.reset();
  }
  if (const auto message = router_health_.observe(report)) (message->warning ? log_warning : log_info)(message->text);
  last_ = std::move(report);
}

void Report::progress(int64_t step) {
  const auto now = Clock::now();
  if (now < next_progress_) return;
  next_progress_ = now + std::chrono::milliseconds(100);
  double step_ms = last_ ? last_->step_ms : 0;
  if (!last_ && device_.is_cpu() && step > first_step_)  // a GPU's steps are only enqueued so far
    step_ms = std::chrono::duration<double, std::milli>(now - start_).count() / static_cast<double>(step - first_step_);
  console_.progress({step, total_steps_, step_ms, step_ms > 0 ? 1000 * tokens_per_step_ / step_ms : 0});
}

/// Failing storage costs figures, not the run.
void Report::write_figures(const StepReport& report) {
  try {
    metrics_.write(report);
  } catch (const StorageError& error) {
    log_error(fmt::format("{}; training continues without the line of step {}", error.what(), report.step));
  }
  try {
    if (tensorboard_) write_tensorboard(report);
  } catch (const StorageError& error) {
    log_error(fmt::format("{}; training continues without TensorBoard events", error.what()));
    tensorboard_.reset();  // its file may end in half a record
  }
}

void Report::write_tensorboard(const StepReport& report) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const auto scalar = [&](const std::string& tag, double value) { tensorboard_->scalar(tag, value, report.step, now); };
  scalar("train/loss", report.loss);
  scalar("train/grad_norm", report.grad_norm);
  scalar("train/lr", report.lr);
  scalar("train/step_ms", report.step_ms);
  scalar("train/tok_s", report.tok_s);
  scalar("train/mem_gib", report.mem_gib);
  scalar("train/nonfinite_steps", static_cast<double>(report.nonfinite_steps));
  if (report.mfu) scalar("train/mfu", *report.mfu);
  if (report.comm) scalar("train/comm_exposed_ms", report.comm->exposed_ms);
  if (report.val_loss) scalar("validation/loss", *report.val_loss);
  if (report.val_bpb) scalar("validation/bpb", *report.val_bpb);
  for (const TaskResult& task : report.tasks) {
    scalar("task/" + task.name + "/acc", task.acc);
    scalar("task/" + task.name + "/acc_norm", task.acc_norm);
  }
  if (!report.routers.empty()) {
    if (report.balanced_by_loss) scalar("train/aux_loss", report.aux_loss);
    scalar("train/z_loss", report.z_loss);
  }
  for (const RouterReport& router : report.routers) {
    scalar("router/" + router.name + "/load_max_mean", router.load_max_mean);
    scalar("router/" + router.name + "/dead_experts", static_cast<double>(router.dead_experts));
    scalar("router/" + router.name + "/entropy", router.entropy);
    tensorboard_->histogram("router/" + router.name + "/loads", router.loads, report.step, now);
  }
  tensorboard_->flush();
}

void Report::trace(const Trace& trace) {
  const TraceSummary summary = summarise(trace);
  write_file_atomic(std::filesystem::path(trace.path).replace_extension().string() + "_summary.json",
                    trace_json(trace, summary));
  console_.print(trace_line(trace, summary));
}

void Report::untrained(const StepReport& report) { console_.evaluation(report); }

void Report::summary() {
  if (!last_) return console_.print(fmt::format("{} is complete: nothing left to train", run_dir_));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  console_.print(summary_line(*last_, seconds, run_dir_));
}

}  // namespace scatterlm
