// Exchanges between the GPUs of one machine by their copy engines, which leave all multiprocessors to computations: each rank
// writes into the memory of the others, one after the other.
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <map>
#include <vector>

namespace scatterlm {

/// All ranks call the same functions with the same sizes in the same order. All work goes into one stream.
class PeerCopies {
 public:
  /// NVLink joins every GPU to all the others. Nothing but free_all() may follow unless it works() on all ranks.
  PeerCopies(int64_t rank, int64_t world, ncclComm_t comm, cudaStream_t stream);

  /// Whether NCCL has opened the memory of the ranks to each other. It does not with NCCL_CUMEM_ENABLE=0, for example.
  bool works() const { return !buffers_.at(board_).of_ranks.empty(); }
  /// Zeros on each rank, into which all of them write. Waits for the GPU, and for the other ranks.
  void* allocate(int64_t bytes);
  void free(const void* memory);
  /// Without it the end of the process frees the memory.
  void free_all();

  /// What later goes into the stream runs once the streams of all ranks have come here.
  void meet();
  /// The own part of `full`, which lies at rank * bytes of memory from allocate(), to all the others. As exchange(), begins
  /// after a meeting, for others might still use the memory, and ends with one.
  void gather(const void* full, int64_t bytes);
  /// Part r of `full`, at r * bytes, to rank r; the parts that the others have for this rank to `received`, in their order.
  void exchange(const void* full, const void* received, int64_t bytes);

 private:
  struct Buffer {
    int64_t bytes = 0;
    ncclWindow_t window = nullptr;
    std::vector<char*> of_ranks;  ///< where this process finds it
  };

  template <class F>
  void for_others(F visit) const;
  template <class F>
  void send(int64_t bytes, F places);

  int64_t rank_, world_;
  ncclComm_t comm_;
  cudaStream_t stream_;
  std::map<const void*, Buffer> buffers_;  ///< by the memory of this rank
  const void* board_;                      ///< on each rank: how often every rank has met
  uint32_t met_ = 0;
};

}  // namespace scatterlm
