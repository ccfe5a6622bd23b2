#include "lib/bench/work.h"

#include <algorithm>

namespace scatterlm::bench {
namespace {

Work sum_of(const std::vector<Work>& kernels) {
  Work sum;
  for (const auto& kernel : kernels) sum = {.flops = sum.flops + kernel.flops, .bytes = sum.bytes + kernel.bytes};
  return sum;
}

double sum_of_bounds(const std::vector<Work>& kernels, const Ceilings& ceilings) {
  double ms = 0;
  for (const auto& kernel : kernels) ms += bound_ms(kernel, ceilings);
  return ms;
}

std::vector<Work> work_of_all(const std::vector<MoeKernel>& kernels, const MoeShape& shape, int64_t element_bytes) {
  std::vector<Work> works;
  for (const auto kernel : kernels) works.push_back(work_of(kernel, shape, element_bytes));
  return works;
}

/// Elements read and written of a kernel that moves nothing but rows and weights.
double elements(MoeKernel kernel, const MoeShape& s) {
  const double token_rows = double(s.tokens) * s.model, expert_rows = double(s.rows()) * s.model,
               act = double(s.rows()) * s.width, weight = double(s.experts) * s.model * s.width;
  switch (kernel) {
    case MoeKernel::kUp: return token_rows + 2 * weight + 3 * act;       // x, w1, h and act
    case MoeKernel::kDown: return act + weight + expert_rows;            // act, w2, y
    case MoeKernel::kDh: return token_rows + weight + 5 * act;           // dout, w2, h read, dh and gated act written
    case MoeKernel::kDw2: return token_rows + act + weight;              // dout, gated act, dw2
    case MoeKernel::kDxRows: return 2 * act + 2 * weight + expert_rows;  // dh, w1, dx of rows
    case MoeKernel::kDw1: return token_rows + 2 * act + 2 * weight;      // x, dh, dw1
    case MoeKernel::kO:
    case MoeKernel::kDx: return expert_rows + token_rows;
    case MoeKernel::kRouting:
    case MoeKernel::kDgates: break;
  }
  return 0;
}

}  // namespace

const char* kernel_name(MoeKernel kernel) {
  static constexpr const char* kNames[] = {"routing", "up", "down", "o", "dh", "dgates", "dw2", "dx_rows", "dw1", "dx"};
  return kNames[static_cast<int>(kernel)];
}

std::optional<GemmSides> gemm_sides(MoeKernel kernel, const MoeShape& s) {
  switch (kernel) {
    case MoeKernel::kUp:
    case MoeKernel::kDw1: return GemmSides{s.model, 2 * s.width};
    case MoeKernel::kDxRows: return GemmSides{2 * s.width, s.model};
    case MoeKernel::kDown: return GemmSides{s.width, s.model};
    case MoeKernel::kDh:
    case MoeKernel::kDw2: return GemmSides{s.model, s.width};
    default: return {};
  }
}

Work work_of(MoeKernel kernel, const MoeShape& shape, int64_t element_bytes) {
  const auto rows = static_cast<double>(shape.rows());
  // Both move int32 and fp32 whatever the rows are: experts, sorted, tokens and inverse; partial sums (one for each 256
  // columns), inverse and gradients.
  if (kernel == MoeKernel::kRouting) return {.bytes = 16 * rows};
  if (kernel == MoeKernel::kDgates) return {.bytes = 4 * rows * ((shape.width + 255) / 256 + 2)};
  const auto sides = gemm_sides(kernel, shape);
  return {.flops = sides ? 2 * rows * sides->k * sides->n : 0, .bytes = element_bytes * elements(kernel, shape)};
}

std::vector<Work> forward_work(const MoeShape& shape, int64_t element_bytes) {
  return work_of_all({MoeKernel::kUp, MoeKernel::kDown, MoeKernel::kO}, shape, element_bytes);
}

std::vector<Work> backward_work(const MoeShape& shape, int64_t element_bytes) {
  return work_of_all({MoeKernel::kDh, MoeKernel::kDw2, MoeKernel::kDxRows, MoeKernel::kDw1, MoeKernel::kDx}, shape,
                     element_bytes);
}

Work weights_of(const MoeShape& shape, int64_t num_experts, int64_t element_bytes) {
  return {.bytes = 3.0 * element_bytes * num_experts * shape.model * shape.width};
}

Work router_forward_work(const MoeShape& s, int64_t element_bytes) {
  const double tokens = s.tokens, weight = double(s.experts) * s.model, logits = tokens * s.experts, slots = s.rows();
  return {.flops = 2 * tokens * weight,
          .bytes = element_bytes * (tokens * s.model + weight) + 4 * logits + (8 + 16) * slots};  // gates, ids; metadata
}

Work router_backward_work(const MoeShape& s, int64_t element_bytes) {
  const double tokens = s.tokens, weight = double(s.experts) * s.model, logits = tokens * s.experts, slots = s.rows();
  return {.flops = 4 * tokens * weight,
          .bytes = element_bytes * 2 * (tokens * s.model + weight) + 4 * logits + 8 * slots};  // ids, gradient of the gates
}

double bound_ms(const Work& work, const Ceilings& ceilings) {
  return 1e3 * std::max(work.flops / (ceilings.gemm_tflops * 1e12), work.bytes / (ceilings.copy_tbps * 1e12));
}

OpWork op_work(const std::vector<Work>& forward, const std::vector<Work>& backward, const std::optional<Ceilings>& ceilings) {
  auto all = forward;
  all.insert(all.end(), backward.begin(), backward.end());
  OpWork work{.forward = sum_of(forward), .training = sum_of(all)};
  if (ceilings) {
    work.forward_bound_ms = sum_of_bounds(forward, *ceilings);
    work.training_bound_ms = sum_of_bounds(all, *ceilings);
  }
  return work;
}

double tflops(double flops, double ms) { return flops / ms / 1e9; }
double gbps(double bytes, double ms) { return bytes / ms / 1e6; }

}  // namespace scatterlm::bench
