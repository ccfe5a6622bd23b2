// Several trainings at a time, each in a process of its own.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lib/util/error.h"

namespace scatterlm {

struct TrainingCommand {
  std::string name;                    ///< for what is printed
  std::vector<std::string> arguments;  ///< of this program: train CONFIG ...
};

/// Runs the commands in their order, `jobs` at a time, each with one of this machine's GPUs where it has any, and prints their
/// validation losses and errors. A failed command does not end the others. A signal to stop is passed on: they save and end. If
/// this process dies, so do they. Returns kExitDone, or the first exit code of a command that is not. Throws Error (exit code
/// 2) if there are fewer GPUs than jobs.
ExitCode train_in_processes(const std::vector<TrainingCommand>& commands, int64_t jobs);

}  // namespace scatterlm
