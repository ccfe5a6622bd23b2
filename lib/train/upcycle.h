// A dense model as the start of one with experts (Komatsuzaki et al., "Sparse upcycling", arXiv 2212.05055): every expert is a
// copy of the dense MLP, the router is new. Gates of one token sum to 1, so that the first loss is that of the dense model.
#pragma once
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/io/safetensors.h"

namespace scatterlm {

struct Upcycling {
  int64_t experts = 0, top_k = 0;
};

/// "experts=8,top_k=2". Throws Error for anything else.
Upcycling parse_upcycling(const std::string& text);

/// The configuration with experts in place of every dense MLP. Throws Error "WHERE: ..." if the model has experts already.
Config upcycled_config(const Config& dense, const Upcycling& upcycling, const std::string& where);

/// The tensors of that model out of those of the dense one; `sparse` is upcycled_config().
std::vector<StreamedTensor> upcycled_tensors(const std::vector<StreamedTensor>& dense, const Config& sparse);

}  // namespace scatterlm
