// Checkpoint folders: RUN/step_00001000/{rank_00000.safetensors, config.yaml, state.json, manifest.json}.
// Tensors are slices of logical tensors, so that any number of ranks can read what another number wrote.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace scatterlm {

/// Elements begin..end-1 (row-major) of the logical tensor `name`.
struct TensorSlice {
  std::string name;
  std::vector<int64_t> shape;  ///< of the whole logical tensor
  int64_t begin = 0, end = 0;
  at::Tensor data;  ///< flat, end - begin elements, any device
};

struct CheckpointContents {
  int64_t step = 0;
  std::string config_yaml;
  nlohmann::json state;  ///< step, tokens, data position, RNG, ...
};

/// What a save or retention needs to know about ranks; one rank: rank 0, world 1, barrier does nothing.
struct RankInfo {
  int64_t rank = 0, world = 1;
  std::function<void()> barrier = [] {};
};

/// Writes RUN/.tmp_step_N, fsyncs all, rank 0 adds the manifest (sizes, XXH3, layout), renames to step_N last. Returns its path.
/// A failure (full disk) leaves the previous checkpoints untouched and throws.
std::string save_checkpoint(const std::string& run_dir, const CheckpointContents& contents, const std::vector<TensorSlice>& slices,
                            const RankInfo& ranks = {});

/// Removes what neither keep_last nor keep_every keeps, and stale temporary folders.
void prune_checkpoints(const std::string& run_dir, int64_t keep_last, int64_t keep_every);

/// Steps that have a complete-looking folder, ascending.
std::vector<int64_t> list_checkpoints(const std::string& run_dir);
std::string checkpoint_path(const std::string& run_dir, int64_t step);

/// First problem found (file, what), or nothing. Hashes every byte of every file.
std::optional<std::string> verify_checkpoint(const std::string& path);

/// A verified checkpoint, read on demand.
class CheckpointReader {
 public:
  /// Verifies first; throws Error naming the file and the way out.
  explicit CheckpointReader(const std::string& path);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  const CheckpointContents& contents() const;
  /// Logical tensors: name -> shape and dtype.
  struct Logical {
    std::vector<int64_t> shape;
    at::ScalarType dtype;
  };
  const std::map<std::string, Logical>& tensors() const;
  /// Elements begin..end-1 of a logical tensor, flat, on the CPU, assembled from whatever ranks wrote them.
  at::Tensor read(const std::string& name, int64_t begin, int64_t end) const;
  at::Tensor read(const std::string& name) const;  ///< whole, in its shape
  const std::string& path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Newest checkpoint of a run that verifies; warns about each newer one that does not. Nothing if the run has none at all;
/// throws if it has some but none verifies.
std::optional<CheckpointReader> open_latest_checkpoint(const std::string& run_dir);

}  // namespace scatterlm
