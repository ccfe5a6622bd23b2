// How fast a model continues sequences, measured with random weights.
#pragma once
#include <cstdint>
#include <vector>

#include "lib/config/config.h"
#include "lib/train/execution_setup.h"

namespace scatterlm {

struct DecodeShape {
  int64_t batch = 1;     ///< sequences
  int64_t prompt = 128;  ///< tokens of each that are there
  int64_t tokens = 64;   ///< of each that follow, one after the other
};

/// Times of one round each, without sampling: the next token is the likeliest, chosen on the device.
struct DecodeTimes {
  std::vector<double> prefill_ms;  ///< the prompts in one pass, up to the first new token
  std::vector<double> token_ms;    ///< mean over the passes for the tokens behind it
};

/// The model of `config` with its initial weights; `rounds` rounds after one that is not counted. Waits for the device at the
/// end of the prompt and of the last token only.
DecodeTimes measure_decoding(const Config& config, const ExecutionSetup& setup, const DecodeShape& shape, int64_t rounds);

/// Bytes of the weights that one pass for `batch` tokens multiplies: all that is dense, and of each layer with experts K of
/// them, or for several tokens as many as these can take at most: batch * K. Norms, biases and rows of the embedding do not
/// count.
double decoded_weight_bytes(const ModelConfig& model, int64_t batch, int64_t element_bytes);

}  // namespace scatterlm
