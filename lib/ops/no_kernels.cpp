// Compiled in place of the *_cuda.cpp files in a build without kernels: no kernel takes anything, so ops go on to their other
// backends. (One file, so that a program that links the *_cuda.cpp files before this library, as the tests of the emulated GPU
// do, gets none of it.)
#include "lib/ops/activation.h"
#include "lib/ops/adamw.h"
#include "lib/ops/cross_entropy.h"
#include "lib/ops/decode_attention.h"
#include "lib/ops/device.h"
#include "lib/ops/gather_sum.h"
#include "lib/ops/graph.h"
#include "lib/ops/linear.h"
#include "lib/ops/moe_mlp.h"
#include "lib/ops/muon.h"
#include "lib/ops/normal.h"
#include "lib/ops/parallel_linear.h"
#include "lib/ops/qk_norm_rope.h"
#include "lib/ops/reduce_partials.h"
#include "lib/ops/rms_norm.h"
#include "lib/ops/rope.h"
#include "lib/ops/router_scores.h"
#include "lib/ops/routing.h"
#include "lib/ops/sum_of_squares.h"
#include "lib/ops/token_rounding.h"

namespace scatterlm::ops {

using at::Tensor;
using std::optional;

int kernels_cuda_version() { return 0; }
bool has_kernels(const Tensor&) { return false; }
void assume_compute_capability(int) {}
std::function<void()> captured(const std::function<void()>& run, c10::Device) { return run; }

namespace cuda {

optional<Tensor> activation_fwd(const Tensor&, Activation) { return {}; }
optional<Tensor> activation_bwd(const Tensor&, const Tensor&, Activation) { return {}; }
bool adamw(const AdamWTensors&, const AdamWStep&) { return false; }
optional<Tensor> softmax_rows(const Tensor&, const Tensor&, const Tensor&, optional<at::ScalarType>) { return {}; }
optional<Tensor> decode_attention(const Tensor&, const Tensor&, const Tensor&, KvCacheLayer&, const Tensor&, int64_t) {
  return {};
}
optional<Tensor> gather_sum(const Tensor&, const Tensor&, const TokenSlots&, const optional<Tensor>&) { return {}; }
optional<Tensor> linear(const Tensor&, const Tensor&, const optional<Tensor>&) { return {}; }
optional<Tensor> moe_mlp(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Routing&, Activation,
                         const MoeMlpBias&) {
  return {};
}
bool muon_momentum(const MuonMomentum&, const Tensor&, const Tensor&) { return false; }
bool muon_apply(const MuonApply&, const Tensor&) { return false; }
bool fill_normal(const Tensor&, uint64_t, int64_t, float) { return false; }
optional<Tensor> parallel_linear(const Tensor&, const Tensor&, const Routing&, RowOrder, RowOrder, const optional<Tensor>&) {
  return {};
}
optional<QueriesKeysValues> qk_norm_rope(const Tensor&, const QkNormRopeOptions&, const Tensor&, const Tensor&) { return {}; }
bool reduce_partials(const Tensor&, const Tensor&, int64_t, const Tensor&) { return false; }
optional<AddedAndNormed> add_rms_norm(const Tensor&, const optional<Tensor>&, const Tensor&, double) { return {}; }
optional<Tensor> rotate(const Tensor&, const Tensor&, const Tensor&, int) { return {}; }
optional<RouterOutput> router(const Tensor&, const Tensor&, const optional<Tensor>&, const RouterOptions&) { return {}; }
optional<RouterOutput> router_scores(const Tensor&, const optional<Tensor>&, const RouterOptions&) { return {}; }
optional<Routing> make_routing(const Tensor&, int64_t) { return {}; }
optional<Tensor> sum_of_squares(const std::vector<Tensor>&) { return {}; }
optional<RoundedRouting> token_rounding(const RouterOutput&, const RouterOptions&) { return {}; }

}  // namespace cuda
}  // namespace scatterlm::ops
