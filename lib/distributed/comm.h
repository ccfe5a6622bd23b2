// Collectives over the data-parallel ranks. Everything that spans ranks goes through Comm: loss normalisation, gradients,
// clipping, statistics, checkpoints.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "lib/distributed/launch_env.h"

namespace scatterlm {

/// An asynchronous collective; see Comm::wait().
using CollectiveHandle = uint64_t;

/// How long collectives took. By copy engines: counted from when all ranks had reached the collective, a reduce-scatter without
/// its sum. Otherwise: counted from when this rank had reached it, with the sum.
struct CommTimes {
  struct Moved {
    double ms = 0, link_bytes = 0;  ///< bytes through the link of each rank: (n-1)/n of the whole tensor
  };
  double exposed_ms = 0;  ///< time for which the computation waited for collectives, or for ranks that were late
  Moved reduce_scatter, all_gather;

  CommTimes operator/(double count) const;
  CommTimes operator+(const CommTimes& other) const;
};

/// Collectives on contiguous tensors of fp32, bf16, fp64 or int64. All ranks must call the same functions with the same sizes
/// in the same order. When another rank fails, stops, leaves or calls something else, this process prints why and ends with
/// kExitPeer in bounded time: no call reports such a failure.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world() const = 0;
  /// What moves parameters and gradients between ranks, for the user: "copy engines".
  virtual std::string transport() const = 0;

  /// Sums the tensor over all ranks, in place.
  virtual void all_reduce(at::Tensor tensor) = 0;
  /// Copies rank 0's tensor to all ranks, in place.
  virtual void broadcast(at::Tensor tensor) = 0;
  /// Returns when every rank has called it. Blocks the host.
  virtual void barrier() = 0;
  /// Barrier for the checkpoint thread, which may call it while the main thread calls the other functions; not subject to the
  /// collective timeout. Throws Error when it is asked to stop.
  virtual void background_barrier(std::stop_token stop) = 0;
  /// Returns whether any rank said yes, the same on all ranks; the answer may be that of the previous call. Blocks the host.
  virtual bool any(bool yes) = 0;

  /// part [n / world] = elements from rank * n / world on of the sum over ranks of full [n]. Asynchronous: the result is there
  /// for what is computed after wait(). Until then neither tensor may be changed. `part` may be that slice of `full` itself.
  virtual CollectiveHandle reduce_scatter(const at::Tensor& full, at::Tensor part) = 0;
  /// Allocates what reduce_scatter() needs for tensors of up to so many bytes; otherwise its first call does. All ranks must
  /// call it with the same size, while no reduce-scatter is in flight.
  virtual void reserve([[maybe_unused]] int64_t bytes) {}
  /// full [n], which comes from gather_buffer() = the slices of all ranks: rank r has filled elements r * n / world to
  /// (r + 1) * n / world. Asynchronous as reduce_scatter().
  virtual CollectiveHandle all_gather(at::Tensor full) = 0;
  /// Zeroed buffer [numel], owned by the Comm. GPUs that reach each other's memory all-gather into it by their copy engines,
  /// which leave all multiprocessors to the computation. All ranks must call it with the same size.
  virtual at::Tensor gather_buffer(int64_t numel, at::TensorOptions options);
  /// Makes what is computed from now on wait for the result of this collective. Does not block the host on a GPU.
  virtual void wait(CollectiveHandle) = 0;

  /// To be called before this process ends by _exit after a failure: the other ranks end too.
  virtual void tell_failure() {}
  /// Between begin_storage() and end_storage() this rank's main thread reads or writes files: ranks that wait for it do so for
  /// storage_timeout_s of CommOptions. May be nested; see StorageScope.
  virtual void begin_storage() {}
  virtual void end_storage() {}
  /// The training step that messages about failures name from now on.
  virtual void set_step(int64_t) {}
  /// Returns the sums over the collectives that have ended since the last call.
  virtual CommTimes take_times() { return {}; }
};

/// A part of a function in which this rank may wait for storage.
class StorageScope {
 public:
  explicit StorageScope(Comm& comm) : comm_(comm) { comm_.begin_storage(); }
  ~StorageScope() { comm_.end_storage(); }
  StorageScope(const StorageScope&) = delete;
  StorageScope& operator=(const StorageScope&) = delete;

 private:
  Comm& comm_;
};

/// Comm of a single rank: every collective is the identity.
std::unique_ptr<Comm> make_single_comm();

struct CommOptions {
  LaunchEnv launch_env;
  at::Device device = at::kCPU;     ///< of the tensors of this rank
  double start_timeout_s = 60;      ///< for all ranks to start and connect
  double timeout_s = 300;           ///< for the slowest rank to join a collective, and for a heartbeat of each other machine
  double storage_timeout_s = 1800;  ///< for a rank that reads or writes files to join a collective
  /// Lines that must be equal on all ranks, such as the configuration. The first that differs is an error (exit code 2).
  std::string identity;
};

/// Connects to the other ranks: CPU ranks of one machine through shared memory, GPUs over NCCL. Throws Error naming the ranks
/// that did not start in time, what differs between ranks, or those that have the same GPU.
std::unique_ptr<Comm> make_comm(const CommOptions& options);

}  // namespace scatterlm
