// A machine that runs the kernels of this project on the CPU, so that their logic is tested where no GPU is: index arithmetic,
// swizzles, descriptors, barriers and phases, order of loads and stores. Every thread of a block is a fibre; one runs at a time
// and gives way only where it waits, and blocks run one after another. So where blocks take tiles from a counter, the first
// takes all of them: that tiles do not depend on their block is tested on a GPU only.
//
// What is asynchronous on the chip happens as late as it may, or at a random moment: bulk copies and cp.async at random, stores
// and matrix products when their thread waits for them. So a stage given away too early, a buffer reused too early or a missing
// wait gives wrong values, and a barrier that is never completed ends with the list of waiting threads. Not modelled: proxy
// fences, register counts, races between threads that a barrier would order, and time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace emulated {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
inline Index thread_index, block_index, block_dim, grid_dim;

/// Most shared memory of a block, as on Hopper.
inline int64_t max_shared_bytes = 227 << 10;

/// Seed of the random order of everything asynchronous.
void seed(uint64_t value);

/// Runs body as every thread of `blocks` blocks. Throws std::runtime_error when all threads wait for ever.
void run(int64_t blocks, int threads, uint32_t shared_bytes, const std::function<void()>& body);

/// The block's shared memory; addresses count from its start plus kSharedBase, poisoned when a block begins.
constexpr uint32_t kSharedBase = 1024;
char* shared(uint32_t address);
void* shared_begin();

void barrier_init(uint32_t barrier, uint32_t count);
void barrier_arrive(uint32_t barrier, int64_t announced_bytes = 0);
void barrier_complete_bytes(uint32_t barrier, int64_t bytes);
void barrier_wait(uint32_t barrier, uint32_t parity);
void named_barrier_sync(int id, int threads);

/// Until the counter in global memory has at least this value.
void wait_for_at_least(const int32_t* counter, int32_t value);

/// All 32 lanes meet and see one another's values. The result is valid until the lane's next exchange.
const uint64_t* warp_exchange(uint64_t value);

/// Some time later, in any order.
void later(std::function<void()> operation);

/// Copies of this thread (cp.async): they end with the barrier that counts them, or are the next group of kCopies.
void copy_later(std::function<void()> copy);
void arrive_after_copies(uint32_t barrier);
void commit_copies();

/// The part of one lane in a product of its warp: fragments of the operands and where its elements of the result are.
struct Fragments {
  uint32_t a[4], b[2];
  float* d;
};
/// A product of the warp. Nobody waits: who comes last runs `product` with the parts of all 32 lanes, and the others may read
/// their results when they have met it somewhere.
void warp_product(const Fragments& part, void (*product)(const Fragments* lanes));

/// Operations of this thread in groups: a wait runs all but the newest groups, in order.
enum class Queue { kStores, kProducts, kCopies };
constexpr int kQueues = 3;
void enqueue(Queue queue, std::function<void()> operation);
void commit(Queue queue);
void wait(Queue queue, int pending);

}  // namespace emulated
