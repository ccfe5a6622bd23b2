#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "lib/distributed/comm.h"

namespace scatterlm {

/// One rank of several without the others: its collectives do nothing. A base for communicators that exchange little or
/// nothing.
class SilentComm : public Comm {
 public:
  SilentComm(int64_t rank, int64_t world) : rank_(rank), world_(world) {}

  int64_t rank() const override { return rank_; }
  int64_t world() const override { return world_; }
  std::string transport() const override { return "nothing"; }
  void all_reduce(at::Tensor) override {}
  void broadcast(at::Tensor) override {}
  void barrier() override {}
  void background_barrier(std::stop_token) override {}
  bool any(bool yes) override { return yes; }
  CollectiveHandle reduce_scatter(const at::Tensor&, at::Tensor) override { return 0; }
  CollectiveHandle all_gather(at::Tensor) override { return 0; }
  void wait(CollectiveHandle) override {}

 private:
  int64_t rank_, world_;
};

}  // namespace scatterlm
