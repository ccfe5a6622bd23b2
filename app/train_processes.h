// Several trainings at a time, each in a process of its own.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/util/error.h"

namespace scatterlm {

struct TrainingCommand {
  std::string name;                    ///< for what is printed
  std::vector<std::string> arguments;  ///< of this program: train CONFIG ...
};

/// How a training ended.
struct TrainingEnd {
  ExitCode code;
  std::string error;  ///< what it said, in one line; empty with kExitDone and kExitRestart
};

/// Runs the commands in their order, `jobs` at a time, each with one of this machine's GPUs where it has any, and prints their
/// validation losses and errors. Calls ended(number of the command, how it ended) for each that was done or failed; one that
/// failed does not end the others. A signal to stop is passed on: they save and end. If this process dies, so do they. Returns
/// kExitDone, or kExitRestart if some were stopped or not started. Throws Error (exit code 2) if there are fewer GPUs than
/// jobs.
ExitCode train_in_processes(const std::vector<TrainingCommand>& commands, int64_t jobs,
                            const std::function<void(size_t, const TrainingEnd&)>& ended);

}  // namespace scatterlm
