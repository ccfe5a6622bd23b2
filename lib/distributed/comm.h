// Everything that spans ranks goes through Comm: sample order, loss normalisation, clipping, statistics, checkpoints.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "lib/distributed/launch_env.h"

namespace scatterlm {

/// A collective that may still be under way; see Comm::wait.
using CollectiveHandle = uint64_t;

/// What collectives took. By copy engines: from when all ranks had come, and a reduce-scatter without its sum. Otherwise from
/// when this rank had come, and with the sum.
struct CommTimes {
  struct Moved {
    double ms = 0, link_bytes = 0;  ///< bytes through the link of each rank: (n-1)/n of the whole tensor
  };
  double exposed_ms = 0;  ///< computation stood still for a collective, or for a rank that came late to it
  Moved reduce_scatter, all_gather;

  CommTimes operator/(double count) const;
  CommTimes operator+(const CommTimes& other) const;
};

/// Collectives over the data-parallel ranks, on contiguous tensors of fp32, bf16, fp64 or int64. All ranks
/// call the same functions with the same sizes in the same order. When another rank fails, stops, leaves or calls something
/// else, the process says so and ends with kExitPeer: no call reports such a failure.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world() const = 0;
  /// What carries parameters and gradients, for the user: "copy engines".
  virtual std::string transport() const = 0;

  /// Sum over ranks, in place.
  virtual void all_reduce(at::Tensor tensor) = 0;
  /// Rank 0's tensor to all, in place.
  virtual void broadcast(at::Tensor tensor) = 0;
  /// On the host: returns when every rank has called it.
  virtual void barrier() = 0;
  /// The barrier of another thread, one a rank, that works beside the one which calls all the rest. No clock runs for it.
  /// Throws Error when it is asked to stop.
  virtual void background_barrier(std::stop_token stop) = 0;
  /// On the host: whether any rank says yes. All ranks get the same answer, which may be that of an earlier call.
  virtual bool any(bool yes) = 0;

  /// part [n / world] = the own part, from rank * n / world on, of the sum over ranks of full [n], once wait() was called for
  /// the ticket. It may be that part of `full` itself. Until then both must stay as they are.
  virtual CollectiveHandle reduce_scatter(const at::Tensor& full, at::Tensor part) = 0;
  /// Memory that reduce_scatter() needs for up to so many bytes; otherwise taken when it is called. All ranks ask for the same,
  /// while none is under way.
  virtual void reserve([[maybe_unused]] int64_t bytes) {}
  /// full [n], which comes from gather_buffer(), = the own parts of all ranks. Waiting as above.
  virtual CollectiveHandle all_gather(at::Tensor full) = 0;
  /// Zeros [numel] that live as long as this: GPUs that reach each other's memory gather there by their copy engines, beside
  /// computations that keep all multiprocessors. All ranks ask for the same.
  virtual at::Tensor gather_buffer(int64_t numel, at::TensorOptions options);
  /// What is computed from now on finds the result of this collective. Does not wait on the host.
  virtual void wait(CollectiveHandle) = 0;

  /// Before this process ends by _exit: the other ranks end as well.
  virtual void tell_failure() {}
  /// Named when something goes wrong from here on.
  virtual void set_step(int64_t) {}
  /// Sums over the collectives that have ended since the last call.
  virtual CommTimes take_times() { return {}; }
};

/// One rank: every collective is the identity.
std::unique_ptr<Comm> make_single_comm();

struct CommOptions {
  LaunchEnv world;
  at::Device device = at::kCPU;  ///< of the tensors, this rank's own
  double start_timeout_s = 60;   ///< for all ranks to appear
  double timeout_s = 300;        ///< for the slowest rank to join a collective, the first one too
  /// Lines that must be equal on all ranks: configuration, program. The first that differs is an error (exit code 2).
  std::string identity;
};

/// Meets the other ranks of the world: CPU ranks of one machine through shared memory, GPUs over NCCL. Throws Error naming the
/// ranks that have not come in time, what differs between them, or those that have the same GPU.
std::unique_ptr<Comm> make_comm(const CommOptions& options);

}  // namespace scatterlm
