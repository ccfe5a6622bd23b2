// Memory that was asked for and is not there, whoever says so.
#pragma once
#include <exception>
#include <optional>
#include <string>

namespace scatterlm {

/// "tried to allocate 20 GiB on the GPU" if `error` is an allocation that failed: LibTorch's on a GPU or a CPU, CUDA's, or
/// std::bad_alloc; nothing for any other error.
std::optional<std::string> failed_allocation(const std::exception& error);

}  // namespace scatterlm
