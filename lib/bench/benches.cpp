#include <fmt/format.h>

#include "lib/bench/bench.h"
#include "lib/bench/cross_entropy.h"
#include "lib/bench/norms.h"

namespace scatterlm::bench {
namespace {

/// `parse` reads shapes, `measure` takes one.
template <class Parse, class Measure>
auto measurements_of_shapes(Parse parse, Measure measure) {
  return [=](std::string_view text) {
    std::vector<Measurement> all;
    for (const auto& shape : parse(text)) {
      const auto run = [=](const Conditions& conditions) { return measure(shape, conditions); };
      all.push_back({(shape.name.empty() ? "" : shape.name + " ") + text_of(shape.sizes()), run});
    }
    return all;
  };
}

/// `measure` takes the inputs of a shape.
template <class Parse, class Measure>
auto measurements(Parse parse, Measure measure) {
  return measurements_of_shapes(parse, [=](const auto& shape, const Conditions& conditions) {
    return measure(make_inputs(shape, conditions.routing, conditions.machine.device), conditions);
  });
}

Bench kernels_alone(const std::string& name, const std::string& help, bool has_families) {
  const auto measure = [name](const MoeInputs& in, const Conditions& conditions) {
    return measure_kernels(name, in, conditions);
  };
  return {.name = name, .help = help, .parse = measurements(parse_moe_shapes, measure), .has_families = has_families};
}

}  // namespace

const std::vector<Bench>& all_benches() {
  static const std::vector<Bench> benches = {
      {.name = "moe_mlp",
       .help = "Forward and backward of the experts, then each kernel",
       .parse = measurements(parse_moe_shapes, measure_moe_mlp),
       .dumps = true},
      {.name = "inference",
       .help = "Forward pass alone, compared with reading the weights of the chosen experts",
       .parse = measurements(parse_moe_shapes, measure_inference)},
      {.name = "router",
       .help = "Router and routing metadata, and their share of the time of a layer",
       .parse = measurements(parse_moe_shapes, measure_router)},
      {.name = "token_rounding",
       .help = "A layer with token rounding, compared with plain top-k",
       .parse = measurements(parse_moe_shapes, measure_token_rounding)},
      {.name = "moa",
       .help = "Projections of a mixture of attention, forward and backward, without and with the attention between them",
       .parse = measurements(parse_moa_shapes, measure_moa),
       .dumps = true},
      {.name = "parallel_linear",
       .help = "One projection of moa, in every order of its input and output rows",
       .parse = measurements(parse_moa_shapes, measure_parallel_linear)},
      {.name = "adamw",
       .help = "AdamW and the gradient norm, for as many parameters as the experts of a layer have",
       .parse = measurements(parse_moe_shapes, measure_adamw),
       .has_families = false},
      {.name = "muon",
       .help = "Muon's passes over elements and its orthogonalisation, of the experts of a layer",
       .parse = measurements(parse_moe_shapes, measure_muon),
       .has_families = false},
      kernels_alone("grouped_gemm", "The grouped matrix products of moe_mlp alone", true),
      kernels_alone("gather_sum", "The sums over experts of moe_mlp alone", false),
      kernels_alone("routing", "The routing metadata of moe_mlp alone", false),
      {.name = "rms_norm",
       .help = "A step of the residual stream, addition and RMSNorm, forward and backward",
       .parse = measurements_of_shapes(parse_norm_shapes, measure_rms_norm),
       .has_families = false,
       .has_experts = false},
      {.name = "qk_norm_rope",
       .help = "Norm and rotary embedding of queries and keys between projection and attention, forward and backward",
       .parse = measurements_of_shapes(parse_qk_norm_shapes, measure_qk_norm_rope),
       .has_families = false,
       .has_experts = false},
      {.name = "cross_entropy",
       .help = "Losses of a chunk of tokens from their logits, without and with the gradient",
       .parse = measurements_of_shapes(parse_logits_shapes, measure_cross_entropy),
       .has_families = false,
       .has_experts = false},
  };
  return benches;
}

nlohmann::ordered_json row_of(const Sizes& sizes, const Conditions& conditions) {
  nlohmann::ordered_json row;
  for (const auto& [letter, size] : sizes) row[letter] = size;
  row["dtype"] = conditions.machine.dtype();
  row["routing"] = routing_name(conditions.routing);
  return row;
}

std::string dump_path(const std::string& folder, const std::string& bench, const Sizes& sizes) {
  std::string name = bench;
  for (const auto& size : sizes) name += fmt::format("_{}", size.second);
  return fmt::format("{}/{}.safetensors", folder, name);
}

}  // namespace scatterlm::bench
