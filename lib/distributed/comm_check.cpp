#include "lib/distributed/comm_check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "lib/util/error.h"

namespace scatterlm {
namespace {

/// Small enough that sums are exact in bf16.
at::Tensor integers(int64_t rank, int64_t numel, at::TensorOptions options) {
  return (at::arange(numel, options.dtype(at::kLong)) % 7 + rank % 5).to(options.dtype());
}

constexpr int kRounds = 9;

/// Median seconds of all rounds by the host's clock, each until `result` is there.
template <class F>
double timed(Comm& comm, const at::Tensor& result, F call) {
  std::vector<double> seconds;
  auto together = at::zeros({1}, result.options());
  for (int round = 0; round < kRounds; ++round) {
    comm.all_reduce(together);  // after a barrier the ranks of several machines go on milliseconds apart
    together.item();
    const auto start = std::chrono::steady_clock::now();
    call();
    result[0].item();  // waits for the device
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return seconds[kRounds / 2];
}

}  // namespace

void check_collectives(Comm& comm, at::Device device, int64_t shard) {
  const int64_t world = comm.world(), rank = comm.rank(), numel = shard * world;
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble, at::kLong}) {
    const auto options = at::TensorOptions().dtype(dtype).device(device);
    const auto check = [&](const char* collective, const at::Tensor& got, const at::Tensor& wanted) {
      if (!got.equal(wanted)) fail("[{}] {} elements of {} per rank: wrong values", collective, shard, c10::toString(dtype));
    };
    const auto own = integers(rank, numel, options);
    auto total = at::zeros({numel}, options);
    for (int64_t r = 0; r < world; ++r) total += integers(r, numel, options);

    auto all = own.clone();
    comm.all_reduce(all);
    check("all_reduce", all, total);
    const auto own_part = [&](const at::Tensor& full) { return full.narrow(0, rank * shard, shard); };
    const auto in_place = own.clone(), twice = own + own, part = at::zeros({shard}, options);
    comm.wait(comm.reduce_scatter(in_place, own_part(in_place)));
    check("reduce_scatter in place", own_part(in_place), own_part(total));
    in_place.copy_(own);
    const CollectiveHandle first = comm.reduce_scatter(in_place, own_part(in_place)), second = comm.reduce_scatter(twice, part);
    for (const CollectiveHandle handle : {second, first, first}) comm.wait(handle);
    check("reduce_scatter while another is in flight", own_part(in_place), own_part(total));
    check("reduce_scatter", part, own_part(total + total));
    const auto gathered = comm.gather_buffer(numel, options);
    for (const int64_t times : {1, 2}) {  // an all-gather overwrites what the buffer holds
      own_part(gathered).copy_(own_part(total * times));
      comm.wait(comm.all_gather(gathered));
      check("all_gather", gathered, total * times);
    }
    auto of_rank_0 = own.clone();
    comm.broadcast(of_rank_0);
    check("broadcast", of_rank_0, integers(0, numel, options));
  }
}

std::vector<Bandwidth> measure_bandwidth(Comm& comm, at::Device device, int64_t bytes) {
  const int64_t shard = std::max<int64_t>(1, bytes / 2 / comm.world()), numel = shard * comm.world();
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(device);
  const auto full = at::ones({numel}, options);
  const auto gathered = comm.gather_buffer(numel, options);
  const double through_link =
      static_cast<double>(2 * numel) * static_cast<double>(comm.world() - 1) / static_cast<double>(comm.world());
  std::vector<Bandwidth> result;
  const double seconds = timed(comm, full, [&] { comm.all_reduce(full); });
  result.push_back({"all_reduce", 2 * numel, seconds, 2 * through_link / seconds});
  const auto add = [&](const char* collective, CommTimes::Moved CommTimes::*moved, const at::Tensor& output, const auto& call) {
    comm.take_times();
    timed(comm, output, call);
    comm.barrier();  // or the last collective may not be in the times yet
    const double mean = (comm.take_times().*moved).ms / 1e3 / kRounds;
    result.push_back({collective, 2 * numel, mean, through_link / mean});
  };
  const auto part = at::ones({shard}, options);
  add("reduce_scatter", &CommTimes::reduce_scatter, part, [&] { comm.wait(comm.reduce_scatter(full, part)); });
  add("all_gather", &CommTimes::all_gather, gathered, [&] { comm.wait(comm.all_gather(gathered)); });
  return result;
}

}  // namespace scatterlm
