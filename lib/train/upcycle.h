// A dense model as the start of one with experts (Komatsuzaki et al., "Sparse upcycling", arXiv 2212.05055): every expert is a
// copy of the dense MLP, the router is new. Gates of one token sum to 1, so that the first loss is that of the dense model.
//
// With `split` = G above 1 (He et al., "Upcycling Large Language Models into Mixture of Experts", arXiv 2410.07524: virtual
// groups), experts G g to G g + G - 1 are group g: the G parts into which the dense MLP is cut along its width. The router has
// one row for a group, G times. The G logits of a group are then equal, a token's top-k takes whole groups (of equal groups the
// lower, because ties go to the lower index), and its K gates, which sum to 1, are equal inside a group: G times their sum over
// the parts is the dense MLP again. routed_scaling_factor is that G.
#pragma once
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/io/safetensors.h"

namespace scatterlm {

struct Upcycling {
  int64_t experts = 0, top_k = 0;
  int64_t split = 1;  ///< parts of the dense MLP; divides both
};

/// "experts=8,top_k=2" or "experts=32,top_k=8,split=4". Throws Error for anything else.
Upcycling parse_upcycling(const std::string& text);

/// The configuration with experts in place of every dense MLP. Throws Error "WHERE: ..." if the model has experts already, or
/// an MLP whose width `split` does not divide.
Config upcycled_config(const Config& dense, const Upcycling& upcycling, const std::string& where);

/// The tensors of that model out of those of the dense one; `sparse` is upcycled_config(). One tensor of the dense MLP is in
/// memory at a time.
std::vector<StreamedTensor> upcycled_tensors(const std::vector<StreamedTensor>& dense, const Config& sparse, int64_t split);

}  // namespace scatterlm
