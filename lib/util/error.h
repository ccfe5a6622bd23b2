// The one exception of the project.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace scatterlm {

/// Exit codes of the program.
enum ExitCode : int {
  kExitDone = 0,
  kExitFailure = 1,   ///< something that should work did not: a contract of the code, a full disk, a driver
  kExitUser = 2,      ///< the command line, a configuration, data or a checkpoint must be changed
  kExitPeer = 70,     ///< another rank has failed, stopped or left; it, or the first rank to notice, says which and why
  kExitRestart = 75,  ///< stopped by a signal or the time budget after saving; the same command continues
};

/// Carries one clear line and the exit code. Caught once, in main.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = kExitUser) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// What the user wrote is wrong: `fail_user("{}:{}: unknown key '{}'", file, line, key)`.
template <class... Args>
[[noreturn]] void fail_user(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format(text, std::forward<Args>(args)...), kExitUser);
}

/// What the code or the machine did is wrong: `fail("[rms_norm] weight must be [D={}], got {}", ...)`.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format(text, std::forward<Args>(args)...), kExitFailure);
}

}  // namespace scatterlm
