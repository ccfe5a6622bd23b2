#include "lib/distributed/comm.h"

#include <ATen/ATen.h>

#include "lib/distributed/local_comm.h"
#include "lib/distributed/nccl_comm.h"
#include "lib/distributed/silent_comm.h"

namespace scatterlm {
namespace {

class SingleComm final : public SilentComm {
 public:
  SingleComm() : SilentComm(0, 1) {}

  CollectiveHandle reduce_scatter(const at::Tensor& full, at::Tensor part) override {
    if (part.data_ptr() != full.data_ptr()) part.copy_(full);
    return 0;
  }
};

}  // namespace

at::Tensor Comm::gather_buffer(int64_t numel, at::TensorOptions options) { return at::zeros({numel}, options); }

CommTimes CommTimes::operator/(double count) const {
  const auto part = [count](const Moved& moved) { return Moved{moved.ms / count, moved.link_bytes / count}; };
  return {exposed_ms / count, part(reduce_scatter), part(all_gather)};
}

CommTimes CommTimes::operator+(const CommTimes& other) const {
  const auto sum = [](const Moved& a, const Moved& b) { return Moved{a.ms + b.ms, a.link_bytes + b.link_bytes}; };
  return {exposed_ms + other.exposed_ms, sum(reduce_scatter, other.reduce_scatter), sum(all_gather, other.all_gather)};
}

std::unique_ptr<Comm> make_single_comm() { return std::make_unique<SingleComm>(); }

std::unique_ptr<Comm> make_comm(const CommOptions& options) {
  if (options.launch_env.size == 1) return make_single_comm();
  if (options.device.is_cpu()) return make_local_comm(options);
  return make_nccl_comm(options);
}

}  // namespace scatterlm
