// Sizes of an MoE MLP as its papers and benchmarks give them: T,D,F,E,K.
#pragma once
#include "lib/bench/shape_list.h"

namespace scatterlm::bench {

struct MoeShape {
  int64_t tokens = 0;             ///< T
  int64_t model = 0;              ///< D
  int64_t width = 0;              ///< F, of one expert
  int64_t experts = 0;            ///< E
  int64_t top_k = 0;              ///< K
  std::string name;               ///< of a published shape, else empty
  bool beside_all_dense = false;  ///< to be compared with a dense MLP as wide as all experts as well

  int64_t rows() const { return tokens * top_k; }  ///< R
  Sizes sizes() const { return {{"T", tokens}, {"D", model}, {"F", width}, {"E", experts}, {"K", top_k}}; }
};

/// What SonicMoE (Guo et al., arXiv 2512.14080, section 6) and the models of these names use; the order of every table.
const std::vector<MoeShape>& published_shapes();

/// T,D,F,E,K, a name of a published shape or one of the sets published, granularity and sparsity (those of ScatterMoE, Tan et
/// al., 2403.08245, section 4), rounding (few rows per expert) and inference (OLMoE and Mixtral, few tokens); several with ';'
/// between. Throws Error about --shapes, also where the kernels cannot take the shape.
std::vector<MoeShape> parse_moe_shapes(std::string_view text);

}  // namespace scatterlm::bench
