// NCCL and CUDA for nccl_comm.cpp and peer_copies.cpp: events, streams, errors as exceptions.
#pragma once
#include <ATen/core/Tensor.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <thread>

#include "lib/util/error.h"
#include "lib/util/text.h"

namespace scatterlm {

inline void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  const auto reason = first_line(ncclGetLastError(nullptr));
  // Between machines NCCL sees a broken connection before this rank knows whose process is gone. The watchdog, which names it
  // and ends the process, gets the time. Where it does not know either, this rank is still not the one that failed.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  throw Error(fmt::format("[{}] {}: {}", what, ncclGetErrorString(result), reason),
              result == ncclRemoteError ? kExitPeer : kExitFailure);
}
inline void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) fail("[{}] {}", what, cudaGetErrorString(result));
}

inline ncclDataType_t type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return ncclFloat32;
    case at::kBFloat16: return ncclBfloat16;
    case at::kDouble: return ncclFloat64;
    case at::kLong: return ncclInt64;
    default: fail("[nccl] takes float32, bfloat16, float64 and int64, got {}", c10::toString(tensor.scalar_type()));
  }
}

/// A CUDA event with a timestamp.
class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// What is enqueued into the stream from now on runs after what was recorded.
  void block(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }
  void synchronize() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  cudaError_t query() const { return cudaEventQuery(event_); }
  double ms_since(const Event& start) const {
    float ms = 0;
    cudaEventElapsedTime(&ms, start.event_, event_);
    return ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A communicator and the stream that it works on: collectives of one NcclStream run in order, those of two run concurrently.
/// The stream has the greatest priority, so that its blocks are scheduled before those of computations.
struct NcclStream {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

  NcclStream() {
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
  }
  ~NcclStream() { cudaStreamDestroy(stream); }
  NcclStream(const NcclStream&) = delete;
  NcclStream& operator=(const NcclStream&) = delete;

  /// Destroys the communicator. Returns whether that went well.
  bool finish() { return ncclCommFinalize(comm) == ncclSuccess && ncclCommDestroy(comm) == ncclSuccess; }
};

}  // namespace scatterlm
