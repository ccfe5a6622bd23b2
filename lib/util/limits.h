// Limits of the system on what a process may have.
#pragma once
#include <string>

namespace scatterlm {

/// For the end of a message about a call that failed with this errno: "; raise the limit of open files (ulimit -n: 64)" for
/// EMFILE, that of processes for EAGAIN, empty for any other.
std::string explain_limit(int reason);

/// EMFILE or EAGAIN if this process can open hardly any more files (fewer than 16) or start no more threads, otherwise 0. For
/// errors of libraries, which do not say it.
int exhausted_limit();

}  // namespace scatterlm
