// What of a model the kernels of a GPU cannot do.
#pragma once
#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/train/execution_setup.h"

namespace scatterlm {

/// Throws Error (exit code 2) naming key and largest number if a layer has more experts than a GPU whose blocks can have
/// `shared_bytes` of shared memory can route to.
void require_routable(const ModelConfig& model, int64_t shared_bytes);

/// One sentence for each part of the model that has no kernel, and runs on slower operations of LibTorch, because of the value
/// of a key or the dtype of the weights.
std::vector<std::string> parts_without_kernel(const ModelConfig& model, at::ScalarType dtype);

/// Both for the GPU of `setup`, the second as warnings; nothing on a CPU.
void check_kernel_limits(const ModelConfig& model, const ExecutionSetup& setup);

}  // namespace scatterlm
