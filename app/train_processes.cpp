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
  size_t number = 0;            ///< of the command that runs
  std::string name = {};        ///< likewise
  std::string last_error = {};  ///< last line of its stderr
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

void start(Place& place, const TrainingCommand& command, size_t number) {
  std::vector<std::string> arguments{"scatterlm"};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  place.number = number;
  place.name = command.name;
  place.last_error.clear();
  place.process.emplace(0, arguments, place.environment);
  print_line(place, stderr, "starts");
}

void relay_output(Place& place) {
  constexpr std::string_view kError = "scatterlm: error: ";
  place.process->relay([&](std::FILE* to, std::string_view line) {
    print_line(place, to, line);
    if (to == stderr) place.last_error = line.starts_with(kError) ? line.substr(kError.size()) : line;
  });
}

/// Prints what has come; how the process has ended, if it has.
std::optional<TrainingEnd> look_after(Place& place, bool stopping) {
  const bool ended = place.process->has_ended();  // first: what it printed before its end is in the pipes then
  relay_output(place);
  if (!ended) return std::nullopt;
  const int status = place.process->status();
  place.process.reset();
  if (status < 0) {
    place.last_error = fmt::format("ended by signal {}", -status);
    print_line(place, stderr, place.last_error);
  }
  if (status == kExitDone) return TrainingEnd{kExitDone, ""};
  if (status == kExitRestart || (status < 0 && stopping)) return TrainingEnd{kExitRestart, ""};
  if (place.last_error.empty()) place.last_error = fmt::format("exit code {}", status);
  return TrainingEnd{status < 0 ? kExitFailure : static_cast<ExitCode>(status), place.last_error};
}

}  // namespace

ExitCode train_in_processes(const std::vector<TrainingCommand>& commands, int64_t jobs,
                            const std::function<void(size_t, const TrainingEnd&)>& ended) {
  if (commands.empty()) return kExitDone;
  auto places = make_places(jobs);
  const StopRequest stop(/*max_minutes=*/0);
  size_t next = 0;
  bool told = false, running = true, some_stopped = false;
  while (running) {
    const bool stopping = !stop.reason().empty();
    running = false;
    for (auto& place : places) {
      if (!place.process && next < commands.size() && !stopping) {
        start(place, commands[next], next);
        next++;
      }
      if (!place.process) continue;
      if (stopping && !told) place.process->send(SIGTERM);
      running = true;
      const auto end = look_after(place, stopping);
      if (!end) continue;
      if (end->code == kExitRestart)
        some_stopped = true;
      else
        ended(place.number, *end);
    }
    told = stopping;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return some_stopped || next < commands.size() ? kExitRestart : kExitDone;
}

}  // namespace scatterlm
