// What the kernels of an MoE MLP have to do, and how fast a machine could: plain arithmetic.
#pragma once
#include <optional>
#include <vector>

#include "lib/bench/moe_shape.h"

namespace scatterlm::bench {

/// Metadata, the three kernels of forward, then backward in its order. Formulas: lib/ops/moe_mlp.cpp.
enum class MoeKernel { kRouting, kUp, kDown, kO, kDh, kDgates, kDw2, kDxRows, kDw1, kDx };

inline constexpr MoeKernel kAllKernels[] = {MoeKernel::kRouting, MoeKernel::kUp,     MoeKernel::kDown, MoeKernel::kO,
                                            MoeKernel::kDh,      MoeKernel::kDgates, MoeKernel::kDw2,  MoeKernel::kDxRows,
                                            MoeKernel::kDw1,     MoeKernel::kDx};

const char* kernel_name(MoeKernel kernel);  ///< "up"

/// A grouped GEMM as one dense product [R, k] x [k, n] of equal FLOPs.
struct GemmSides {
  int64_t k, n;
};
/// Nothing: not a GEMM.
std::optional<GemmSides> gemm_sides(MoeKernel kernel, const MoeShape& shape);

struct Work {
  double flops = 0;  ///< on tensor cores
  double bytes = 0;  ///< read and written at least: every operand once, gathered rows once per token
};

/// Of SwiGLU, for elements of 2 (bfloat16) or 4 bytes. Indices count where nothing else moves.
Work work_of(MoeKernel kernel, const MoeShape& shape, int64_t element_bytes);

/// One after the other, without metadata and sums of gate gradients.
std::vector<Work> forward_work(const MoeShape& shape, int64_t element_bytes);
std::vector<Work> backward_work(const MoeShape& shape, int64_t element_bytes);

/// A forward that reads the weights of `num_experts` experts once, and nothing else that counts.
Work weights_of(const MoeShape& shape, int64_t num_experts, int64_t element_bytes);

/// Logits, scores, selection and metadata; backward from the logits in fp32.
Work router_forward_work(const MoeShape& shape, int64_t element_bytes);
Work router_backward_work(const MoeShape& shape, int64_t element_bytes);

/// What one GPU reaches on a large product and on a large copy.
struct Ceilings {
  double gemm_tflops = 0;
  double copy_tbps = 0;  ///< read and written
};

/// The roofline: no kernel is done before its products and its bytes are (Williams et al., CACM 52, 4).
double bound_ms(const Work& work, const Ceilings& ceilings);

/// Forward, and forward with backward, of kernels one after the other; bounds: nothing on a CPU.
struct OpWork {
  Work forward, training;
  std::optional<double> forward_bound_ms, training_bound_ms;
};
OpWork op_work(const std::vector<Work>& forward, const std::vector<Work>& backward, const std::optional<Ceilings>& ceilings);

double tflops(double flops, double ms);
double gbps(double bytes, double ms);

}  // namespace scatterlm::bench
