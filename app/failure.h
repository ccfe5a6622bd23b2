// What the user is told of an error that ends a command or a run.
#pragma once
#include <exception>
#include <string>

#include "lib/util/error.h"

namespace scatterlm {

/// One line, and the exit code.
struct Failure {
  std::string text;
  ExitCode code;
};

/// `trains`: whether the command trains; models then have remedies of their own against a lack of memory.
Failure explain_failure(const std::exception& error, bool trains);

}  // namespace scatterlm
