#include "app/failure.h"

#include <fmt/format.h>

#include <system_error>

#include "lib/train/memory_estimate.h"
#include "lib/util/limits.h"
#include "lib/util/out_of_memory.h"
#include "lib/util/text.h"

namespace scatterlm {

Failure explain_failure(const std::exception& error, bool trains) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return {ours->what(), ours->code()};
  // Of the standard library: a thread that could not be started.
  if (const auto* system = dynamic_cast<const std::system_error*>(&error))
    return {first_line(error.what()) + explain_limit(system->code().value()), kExitFailure};
  if (const auto allocation = failed_allocation(error)) {
    const auto advice = trains ? memory_advice() : "use smaller sizes or a machine with more memory";
    return {fmt::format("out of memory: {}; {}", *allocation, advice), kExitUser};
  }
  // The text of LibTorch's exceptions goes on for lines with its own stack; the first line says what happened.
  return {first_line(error.what()), kExitFailure};
}

}  // namespace scatterlm
