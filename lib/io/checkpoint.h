// Checkpoint folders: RUN/step_00001000/{rank_00000.safetensors, ..., config.yaml, state.json, manifest.json, manifest.xxh3}.
// Tensors are slices of logical tensors, so that any number of ranks can read what another number wrote; manifest.h says how
// they are stored. A folder gets its name when all of it is on disk; until then it is called .tmp_step_00001000.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/io/safetensors.h"

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
  /// What travels with the weights, by file name: the tokenizer, and what else an imported model came with.
  std::map<std::string, std::string> files;
};

/// What a save or retention needs to know about ranks; one rank: rank 0, world 1, barrier does nothing.
struct RankInfo {
  int64_t rank = 0, world = 1;
  std::function<void()> barrier = [] {};
};

/// Every rank calls this with its own slices; together they hold each element once. The state and configuration of rank 0
/// count. The run folder must exist: one that was renamed meanwhile is not made again. A checkpoint of the same step is
/// replaced. Returns the path. A failure (full disk) throws on the ranks that saw it and on rank 0, which removes the
/// unfinished folder; earlier checkpoints stay as they are. Calls barrier three times, also after a failure.
std::string save_checkpoint(const std::string& run_dir, const CheckpointContents& contents,
                            const std::vector<TensorSlice>& slices, const RankInfo& ranks = {});

/// Saves whole tensors from one process, without having them in memory at once.
std::string save_streamed_checkpoint(const std::string& run_dir, const CheckpointContents& contents,
                                     const std::vector<StreamedTensor>& tensors);

/// Removes what neither keep_last (newest, `step` among them) nor keep_every (multiples; 0 = none) keeps of the checkpoints up
/// to `step`, which was just saved, and unfinished folders. Later steps stay: this run knows nothing of them. One rank calls
/// it, while none saves.
void prune_checkpoints(const std::string& run_dir, int64_t step, int64_t keep_last, int64_t keep_every);

/// Removes what a save that was cut off has left. A checkpoint that it was about to replace gets its name back. One process
/// calls it, while none saves.
void remove_unfinished(const std::string& run_dir);

/// Renames a checkpoint that cannot be read to rejected_step_N (or rejected_step_N_2, ...), which nothing lists, resumes from
/// or prunes. Returns the new path. Throws Error if that fails.
std::string set_checkpoint_aside(const std::string& path);

/// Steps that have a folder, ascending; none without a run folder. Throws Error if it cannot be read.
std::vector<int64_t> list_checkpoints(const std::string& run_dir);
std::string checkpoint_path(const std::string& run_dir, int64_t step);

/// What a user means by PATH: a checkpoint folder, or all checkpoints of a run folder by ascending step. Throws Error if there
/// is none.
std::vector<std::string> find_checkpoints(const std::string& path);

/// First problem found (file, what), or nothing. Hashes every byte of every file.
std::optional<std::string> verify_checkpoint(const std::string& path);

/// The files of tensors that one of several ranks verifies, so that together they read each of them once.
struct VerifyShare {
  int64_t rank = 0, world = 1;
};

/// A verified checkpoint, read on demand.
class CheckpointReader {
 public:
  /// Verifies first: hashes every byte of the files of its share, and of configuration and state always. Throws Error naming
  /// the file and the way out.
  explicit CheckpointReader(const std::string& path, const VerifyShare& share = {});
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  const std::string& path() const;
  const CheckpointContents& contents() const;
  uint64_t verified_bytes() const;  ///< hashed by the constructor, without the manifest
  /// Logical tensors: name -> shape and dtype.
  struct Logical {
    std::vector<int64_t> shape;
    at::ScalarType dtype;
  };
  const std::map<std::string, Logical>& tensors() const;
  /// Elements begin..end-1 of a logical tensor, flat, on the CPU, assembled from whatever ranks wrote them.
  at::Tensor read(const std::string& name, int64_t begin, int64_t end) const;
  at::Tensor read(const std::string& name) const;  ///< whole, in its shape
  /// Elements from `begin` on into `out`, flat, of any dtype and device.
  void read_into(const std::string& name, int64_t begin, at::Tensor out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace scatterlm
