// Sizes of the projections of a mixture of attention: B,S,D,E,K,heads.
#pragma once
#include "lib/bench/shape_list.h"
#include "lib/bench/work.h"

namespace scatterlm::bench {

struct MoaShape {
  int64_t batch = 0;     ///< B
  int64_t sequence = 0;  ///< S
  int64_t model = 0;     ///< D
  int64_t experts = 0;   ///< E
  int64_t top_k = 0;     ///< K
  int64_t heads = 0;     ///< of one expert, and of keys and values
  std::string name;      ///< of a published shape, else empty

  static constexpr int64_t kHeadWidth = 128;            ///< P
  int64_t tokens() const { return batch * sequence; }   ///< T
  int64_t rows() const { return tokens() * top_k; }     ///< R
  int64_t width() const { return heads * kHeadWidth; }  ///< of one expert
  Sizes sizes() const { return {{"B", batch}, {"S", sequence}, {"D", model}, {"E", experts}, {"K", top_k}, {"heads", heads}}; }
};

/// B,S,D,E,K,heads, a name of a published shape (JetMoE-8B, Shen et al., arXiv 2404.07413; ScatterMoE's, Tan et al.,
/// 2403.08245, section 4) or published for all; several with ';' between. Throws Error about --shapes.
std::vector<MoaShape> parse_moa_shapes(std::string_view text);

/// One ParallelLinear of R rows: in their experts' weights [out, in].
struct LinearShape {
  int64_t tokens, rows, experts, in, out;
  bool shared = false;  ///< a row of the input serves all experts of its token
  bool gated = false;   ///< the result is summed over them
};
/// Kernels one after the other, as for the MoE MLP. The gates' gradient is made where that of the input is.
std::vector<Work> forward_work(const LinearShape& shape, int64_t element_bytes);
std::vector<Work> backward_work(const LinearShape& shape, int64_t element_bytes);

/// Query and output projection.
std::vector<Work> forward_work(const MoaShape& shape, int64_t element_bytes);
std::vector<Work> backward_work(const MoaShape& shape, int64_t element_bytes);

/// Causal attention between the two: half of all pairs of positions.
Work attention_forward_work(const MoaShape& shape, int64_t element_bytes);
Work attention_backward_work(const MoaShape& shape, int64_t element_bytes);

}  // namespace scatterlm::bench
