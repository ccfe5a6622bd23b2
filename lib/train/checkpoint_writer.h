#pragma once
#include <c10/core/Event.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/train/checkpointing.h"

namespace scatterlm {

/// Saves a run's checkpoints: while it waits, or asynchronously (checkpoint.async). Then the state is copied to host
/// memory, on a GPU by a stream of its own that only the next update waits for, and a thread writes the copy: the same bytes.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string run_dir, TrainingState& state);

  /// Saves the present state, after what was begun before. All ranks call it, as they do finish(). Failing storage, such as a
  /// full disk, is reported, and training continues: the next save may succeed. For the `last` save it is thrown.
  void save(bool last);
  /// Once a step: throws what has gone wrong in this rank's thread; failing storage is reported.
  void check();
  /// Returns when what was begun is on disk, and throws if it is not. Ends the process on a rank that others have waited for
  /// longer than checkpoint.timeout_s.
  void finish();

  /// How long training stood still for saving since the last call.
  double take_stall_ms() { return std::exchange(stall_ms_, 0.0); }

 private:
  void begin();
  /// Takes what has become of the thread: failing storage into failure_, anything else is thrown.
  void take_result();
  void throw_failure();
  /// Copies of the slices in host memory, complete when the event is over; no event: complete.
  std::shared_ptr<c10::Event> copy_to_host(std::vector<TensorSlice>& slices);
  struct Progress {
    bool all_done;  ///< on all ranks
    bool late;      ///< this rank still works while another one waits for it
  };
  Progress progress();
  /// Not by an exception: the thread hangs in a call to the system and still uses what would be destroyed.
  [[noreturn]] void give_up();

  std::string run_dir_;
  TrainingState& state_;
  std::vector<at::Tensor> host_;    ///< one a slice, used again by every save
  bool under_way_ = false;          ///< on some rank
  int64_t step_ = 0;                ///< of what is under way
  std::atomic<bool> busy_ = false;  ///< the thread does not wait for those of other ranks
  double stall_ms_ = 0;
  std::future<void> written_;
  std::exception_ptr failure_;  ///< of the storage, not yet reported
  std::jthread writer_;
};

}  // namespace scatterlm
