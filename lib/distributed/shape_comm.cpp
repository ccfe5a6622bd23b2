#include "lib/distributed/shape_comm.h"

#include <ATen/ATen.h>

#include "lib/distributed/silent_comm.h"

namespace scatterlm {
namespace {

class ShapeComm final : public SilentComm {
 public:
  explicit ShapeComm(int64_t world) : SilentComm(0, world) {}

  /// As much as GPUs receive the parts of the other ranks in by their copy engines.
  void reserve(int64_t bytes) override {
    received_ = at::empty({bytes - bytes / world()}, at::device(at::kMeta).dtype(at::kByte));
  }

 private:
  at::Tensor received_;
};

}  // namespace

std::unique_ptr<Comm> make_shape_comm(int64_t world) { return std::make_unique<ShapeComm>(world); }

}  // namespace scatterlm
