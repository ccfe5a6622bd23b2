// Sizes of an MoE MLP as its papers and benchmarks give them: T,D,F,E,K.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace scatterlm::bench {

struct MoeShape {
  int64_t tokens = 0;   ///< T
  int64_t model = 0;    ///< D
  int64_t width = 0;    ///< F, of one expert
  int64_t experts = 0;  ///< E
  int64_t top_k = 0;    ///< K
  std::string name;     ///< of a published shape, else empty

  int64_t rows() const { return tokens * top_k; }  ///< R
  std::string text() const;                        ///< "24576,1536,256,128,8"
};

/// What SonicMoE (Guo et al., arXiv 2512.14080, section 6) and the models of these names use; the order of every table.
const std::vector<MoeShape>& published_shapes();

/// "published", a name of a published shape or T,D,F,E,K; several with ';' between. Throws Error about --shapes.
std::vector<MoeShape> parse_shapes(std::string_view text);

/// Throws Error if the kernels cannot take the shape: widths are multiples of 8.
void require_kernel_shape(const MoeShape& shape);

}  // namespace scatterlm::bench
