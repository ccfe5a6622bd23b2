#include "lib/report/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lib/util/file.h"
#include "lib/util/file_error.h"

namespace scatterlm {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json comm_json(const CommTimes& times) {
  const auto gbps = [](const CommTimes::Moved& moved) {
    return moved.ms > 0 ? Json(moved.link_bytes / moved.ms / 1e6) : Json(nullptr);
  };
  return {{"exposed_ms", times.exposed_ms},
          {"reduce_scatter_ms", times.reduce_scatter.ms},
          {"reduce_scatter_gbps", gbps(times.reduce_scatter)},
          {"all_gather_ms", times.all_gather.ms},
          {"all_gather_gbps", gbps(times.all_gather)}};
}

Json router_json(const RouterReport& router) {
  return {{"name", router.name},
          {"load_max_mean", router.load_max_mean},
          {"dead_experts", router.dead_experts},
          {"entropy", router.entropy},
          {"drop", router.drop},
          {"fill", router.fill},
          {"aux_loss", router.aux_loss},
          {"z_loss", router.z_loss}};
}

/// The step of a whole line; none for what is not a line of this file.
std::optional<int64_t> step_of(std::string_view line) {
  const auto json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  return json["step"].get<int64_t>();
}

std::string lines_up_to(std::string_view text, int64_t last_step) {
  std::string kept;
  for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    const auto step = step_of(text.substr(0, end));
    if (step && *step <= last_step) kept += text.substr(0, end + 1);
  }
  return kept;
}

}  // namespace

std::string metrics_line(const StepReport& report) {
  Json routers = Json::array();
  for (const RouterReport& router : report.routers) routers.push_back(router_json(router));
  // nlohmann writes the shortest digits that round-trip, and null for NaN and infinity.
  Json line{{"step", report.step},
            {"tokens", report.tokens},
            {"loss", report.loss},
            {"aux_loss", report.aux_loss},
            {"z_loss", report.z_loss},
            {"grad_norm", report.grad_norm},
            {"lr", report.lr},
            {"step_ms", report.step_ms},
            {"tok_s", report.tok_s},
            {"mfu", or_null(report.mfu)},
            {"mem_gib", report.mem_gib},
            {"alloc_retries", report.alloc_retries},
            {"load_max_mean", report.load_max_mean},
            {"val_loss", or_null(report.val_loss)},
            {"val_bpb", or_null(report.val_bpb)},
            {"nonfinite_steps", report.nonfinite_steps},
            {"save_stall_ms", report.save_stall_ms},
            {"comm", report.comm ? comm_json(*report.comm) : Json(nullptr)},
            {"routers", std::move(routers)}};
  for (const TaskResult& task : report.tasks) {
    const std::string prefix = "task/" + task.name + "/";
    line[prefix + "acc"] = task.acc;
    line[prefix + "acc_stderr"] = task.acc_stderr;
    line[prefix + "acc_norm"] = task.acc_norm;
    line[prefix + "acc_norm_stderr"] = task.acc_norm_stderr;
  }
  return line.dump();
}

MetricsWriter::MetricsWriter(std::string path, int64_t resume_step) : path_(std::move(path)) {
  if (std::filesystem::is_regular_file(path_)) {
    const std::string before = read_file(path_), kept = lines_up_to(before, resume_step);
    if (kept != before) write_file_atomic(path_, kept);
  }
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_file(path_, "write", errno);
}

MetricsWriter::~MetricsWriter() {
  if (fd_ >= 0) close(fd_);
}

void MetricsWriter::write(const StepReport& report) {
  const std::string line = metrics_line(report) + "\n";
  const ssize_t written = ::write(fd_, line.data(), line.size());  // one call: a killed process leaves no half line
  if (written == std::ssize(line)) return;
  const int error = written < 0 ? errno : ENOSPC;
  struct stat info {};
  if (written > 0 && fstat(fd_, &info) == 0) [[maybe_unused]]
    const int ignored = ftruncate(fd_, info.st_size - written);
  fail_file(path_, "write", error);
}

}  // namespace scatterlm
