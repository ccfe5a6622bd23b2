#include "app/train_processes.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include "lib/distributed/rank_process.h"
#include "lib/train/stop.h"
#include "lib/util/gpu.h"

namespace scatterlm {
namespace {

/// A place for one process at a time.
struct Place {
  std::vector<std::string> environment;  ///< that gives it its GPU
  std::optional<RankProcess> process = {};
  std::string name = {};  ///< of the command that runs
};

std::vector<Place> make_places(int64_t jobs) {
  const auto& devices = gpus();
  if (!devices.empty() && jobs > std::ssize(devices))
    fail_user("--jobs {}: each run needs a GPU of its own, and there are {}", jobs, devices.size());
  std::vector<Place> places(static_cast<size_t>(jobs));
  for (size_t i = 0; i < places.size() && !devices.empty(); i++)
    places[i].environment = {"CUDA_VISIBLE_DEVICES=" + devices[i].uuid};
  return places;
}

void print_line(const Place& place, std::FILE* to, std::string_view line) {
  if (to == stdout && !line.starts_with("validation")) return;
  fmt::print(to, "[{}] {}\n", place.name, line);
  std::fflush(to);
}

void start(Place& place, const TrainingCommand& command) {
  std::vector<std::string> arguments{"scatterlm"};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  place.name = command.name;
  place.process.emplace(0, arguments, place.environment);
  print_line(place, stderr, "starts");
}

/// Prints what has come; the exit code if the process has ended.
std::optional<ExitCode> look_after(Place& place) {
  const bool ended = place.process->has_ended();  // first: what it printed before its end is in the pipes then
  place.process->relay([&](std::FILE* to, std::string_view line) { print_line(place, to, line); });
  if (!ended) return std::nullopt;
  const int status = place.process->status();
  place.process.reset();
  if (status < 0) print_line(place, stderr, fmt::format("ended by signal {}", -status));
  return status < 0 ? kExitFailure : static_cast<ExitCode>(status);
}

}  // namespace

ExitCode train_in_processes(const std::vector<TrainingCommand>& commands, int64_t jobs) {
  if (commands.empty()) return kExitDone;
  auto places = make_places(jobs);
  const StopRequest stop(/*max_minutes=*/0);
  ExitCode first_failure = kExitDone;
  size_t next = 0;
  bool told = false, running = true;
  while (running) {
    const bool stopping = !stop.reason().empty();
    running = false;
    for (auto& place : places) {
      if (!place.process && next < commands.size() && !stopping) start(place, commands[next++]);
      if (!place.process) continue;
      if (stopping && !told) place.process->send(SIGTERM);
      const auto code = look_after(place);
      if (code.value_or(kExitDone) != kExitDone && first_failure == kExitDone) first_failure = *code;
      running = true;
    }
    told = stopping;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return first_failure == kExitDone && next < commands.size() ? kExitRestart : first_failure;
}

}  // namespace scatterlm
