// Exchanges between the GPUs of one machine by their copy engines, which leave all multiprocessors to computations: each rank
// writes into the memory of the others.
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace scatterlm {

/// All ranks call the same functions with the same sizes in the same order. All work is enqueued into one stream.
class PeerCopies {
 public:
  /// NVLink joins every GPU to all the others. Only free_all() may follow unless is_shared() and then try_exchange() succeed on
  /// all ranks.
  PeerCopies(int64_t rank, int64_t world, ncclComm_t comm, cudaStream_t stream);

  /// Whether NCCL has opened the memory of the ranks to each other. It does not with NCCL_CUMEM_ENABLE=0, for example.
  bool is_shared() const { return !buffers_.at(flags_).of_ranks.empty(); }
  /// Exchanges values with all other ranks by the same operations as the functions below. Returns an empty text if they arrived
  /// within the timeout, otherwise why this driver or device cannot do it.
  std::string try_exchange(std::chrono::duration<double> timeout);

  /// Zeroed memory of this many bytes on each rank, into which all ranks can write. Waits for the GPU, and for the other ranks.
  void* allocate(int64_t bytes);
  void free(const void* memory);
  /// To be called at the end; if it is not, the end of the process frees the memory.
  void free_all();

  /// What is enqueued after it runs once the streams of all ranks have reached this call.
  void stream_barrier();
  /// Writes the own part of `full`, at rank * bytes of memory from allocate(), to all other ranks. Like exchange(), it must
  /// come after a stream_barrier(), since others might still use the memory, and ends with one.
  void gather(const void* full, int64_t bytes);
  /// Writes part r of `full`, at r * bytes, to rank r. `received` [ranks - 1 parts], from allocate(), gets the parts that the
  /// others have for this rank, in order of rank.
  void exchange(const void* full, const void* received, int64_t bytes);

 private:
  class Trial;
  struct Buffer {
    int64_t bytes = 0;
    ncclWindow_t window = nullptr;
    std::vector<char*> of_ranks;  ///< the address of each rank's memory in this process; empty if it is not shared
  };

  template <class F>
  void for_others(F visit) const;
  template <class F>
  void send(int64_t bytes, F places);

  int64_t rank_, world_;
  ncclComm_t comm_;
  cudaStream_t stream_;
  unsigned wait_flags_;                    ///< of the driver's operation that waits for a value
  std::map<const void*, Buffer> buffers_;  ///< by this rank's memory
  const void* flags_;                      ///< [ranks] on each rank: barriers that every rank has reached; then Trial's values
  uint32_t barriers_ = 0;
};

}  // namespace scatterlm
