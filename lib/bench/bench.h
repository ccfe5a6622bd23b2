// The benchmarks of `scatterlm bench`: check a result, then time it.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lib/bench/inputs.h"
#include "lib/bench/machine.h"

namespace scatterlm::bench {

/// How every shape is measured.
struct Conditions {
  const Machine& machine;
  RoutingPattern routing;
  int64_t rounds = 0;  ///< of each variant; 0: see num_rounds
  std::string dump;    ///< folder for inputs, outputs and gradients; empty: they are not written
};

/// What was measured: rows of the evidence file, and the same for people.
struct Measured {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::string text;
};

struct Measurement {
  std::string shape;  ///< with its name, if it has one
  std::function<Measured(const Conditions&)> run;
};

struct Bench {
  std::string name, help;
  std::function<std::vector<Measurement>(std::string_view shapes)> parse;  ///< throws Error about --shapes
  bool dumps = false;                                                      ///< has --dump
  bool has_families = true;                                                ///< has --family
  bool has_experts = true;                                                 ///< has --routing
};

const std::vector<Bench>& all_benches();

/// The op: metadata, forward and backward, compared with plain LibTorch and a dense MLP of equal FLOPs; then its kernels alone.
Measured measure_moe_mlp(const MoeInputs& in, const Conditions& conditions);

/// Its kernels alone, one row each. `bench`: grouped_gemm, gather_sum or routing.
Measured measure_kernels(const std::string& bench, const MoeInputs& in, const Conditions& conditions);

/// The op forward only, compared with the time to read the weights of the experts that the tokens take.
Measured measure_inference(const MoeInputs& in, const Conditions& conditions);

/// Router and metadata, forward and backward, compared with plain LibTorch, and their share of the time of router and experts.
Measured measure_router(const MoeInputs& in, const Conditions& conditions);

/// A layer with token rounding in its router, forward and backward, compared with plain top-k and with equal numbers of rows
/// for all experts without rounding: for multiples of 128 tokens per expert the same work in the experts' kernels.
Measured measure_token_rounding(const MoeInputs& in, const Conditions& conditions);

/// Query and output projection, the second on what the first gives (its gradient is dq of the dump), and once more with
/// attention between them; compared with plain LibTorch and two dense products of equal FLOPs.
Measured measure_moa(const MoaInputs& in, const Conditions& conditions);

/// One projection in the four orders of its rows, one row each; compared with plain LibTorch and a dense product of equal
/// FLOPs.
Measured measure_parallel_linear(const MoaInputs& in, const Conditions& conditions);

/// The optimiser's step for the weights of the experts of one layer: AdamW with fp32 state and bf16 parameters, with bf16 state
/// alone, also with bf16 gradients, and the sum of squares of the gradient's norm; compared with plain LibTorch.
Measured measure_adamw(const MoeInputs& in, const Conditions& conditions);

/// Muon for the same weights: its passes over elements, compared with plain LibTorch, and the Newton-Schulz iterations.
Measured measure_muon(const MoeInputs& in, const Conditions& conditions);

/// What a row of the evidence begins with: shape, type and routing.
nlohmann::ordered_json row_of(const Sizes& sizes, const Conditions& conditions);

/// FOLDER/BENCH_24576_1536_256_128_8.safetensors
std::string dump_path(const std::string& folder, const std::string& bench, const Sizes& sizes);

}  // namespace scatterlm::bench
