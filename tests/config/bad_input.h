// A table of bad configurations and the one line that each of them must end in.
#pragma once
#include <string>
#include <vector>

#include "lib/config/load.h"
#include "lib/util/error.h"

namespace scatterlm {

struct BadInput {
  std::string text;
  std::vector<std::string> sets;
  std::string message;
};

/// The least that a configuration must say. What a test adds begins in line 3.
inline const std::string kMinimal = "data: {train: a.bin}\ntrain: {steps: 10}\n";

/// The message of the Error for this input, behind the exit code if that is not the one for user errors.
inline std::string error_of(const BadInput& input) {
  try {
    parse_config(input.text, "x.yaml", input.sets);
    return "no error";
  } catch (const Error& error) {
    return error.code() == kExitUser ? error.what()
                                     : fmt::format("exit code {}: {}", static_cast<int>(error.code()), error.what());
  }
}

}  // namespace scatterlm
