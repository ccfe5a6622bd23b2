// What a checkpoint holds of a training run, and how a run or a model comes back from it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/io/checkpoint.h"
#include "lib/nn/model.h"
#include "lib/train/training_state.h"

namespace scatterlm {

/// What a checkpoint holds. The tensors are those of the training, which goes on changing them.
struct TrainingSnapshot {
  CheckpointContents contents;
  std::vector<TensorSlice> slices;
};

/// Waits for the device. Throws Error if the state holds values that are not finite.
TrainingSnapshot training_snapshot(const TrainingState& state);

/// Saves RUN/step_N and prunes old ones. Returns the new folder.
std::string write_snapshot(const std::string& run_dir, const CheckpointConfig& config, const TrainingSnapshot& snapshot,
                           const RankInfo& ranks);

/// Both at once.
std::string save_training(const std::string& run_dir, const TrainingState& state);

/// Continues exactly where the checkpoint stands. Throws Error naming the first difference if its model is another one, or
/// the files of data.train are.
void resume_training(const CheckpointReader& reader, TrainingState& state);

/// A checkpoint whose weights a new run starts from, with a fresh optimiser, at step 0. Tensors that match a pattern (`*` and
/// `?` as in a shell) may be missing in it, and then have their initial values, or be left over.
struct InitialWeights {
  CheckpointReader reader;
  std::vector<std::string> allow;
};

/// Throws Error naming the first tensor that is missing, left over or of another shape, unless a pattern allows it. Warns of
/// the keys with which the model computes something else than the one whose weights it takes.
void check_initial_weights(const InitialWeights& initial, const nn::Model& model);

/// Where every run starts: at the checkpoint, at given weights, or untrained.
void begin_training(const std::optional<CheckpointReader>& checkpoint, const std::optional<InitialWeights>& initial,
                    TrainingState& state);

/// Throws as resume_training would, from the names and shapes of tensors alone.
void check_resumable(const CheckpointReader& reader, const Config& config, const Loader& loader);

/// Weights and router biases only, for evaluation and generation.
void load_weights(const CheckpointReader& reader, nn::Model& model);

/// The configuration stored in a checkpoint.
Config checkpoint_config(const CheckpointReader& reader);

}  // namespace scatterlm
