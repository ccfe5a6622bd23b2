#include "lib/train/checkpoint_writer.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <cstdio>

#include "lib/util/file_error.h"
#include "lib/util/log/log.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

/// Reports failing storage in place of throwing it.
template <class F>
void tolerate(F work) {
  try {
    work();
  } catch (const StorageError& error) {
    log_error(fmt::format("{}; training continues without this checkpoint", error.what()));
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::string run_dir, TrainingState& state) : run_dir_(std::move(run_dir)), state_(state) {}

void CheckpointWriter::save(bool last) {
  const auto start = Clock::now();
  tolerate([&] { finish(); });
  const auto save_now = [&] {
    const StorageScope storage(state_.comm);
    save_training(run_dir_, state_);
  };
  if (state_.config.checkpoint.async) {
    begin();
  } else if (last) {
    save_now();
  } else {
    tolerate(save_now);
  }
  stall_ms_ += ms_since(start);
}

void CheckpointWriter::begin() {
  const auto start = Clock::now();
  auto snapshot = training_snapshot(state_);
  const auto copied = copy_to_host(snapshot.slices);
  const double stall_ms = ms_since(start);
  step_ = state_.steps;
  busy_ = true;
  std::packaged_task<void(std::stop_token)> write(
      [this, snapshot = std::move(snapshot), copied, stall_ms](std::stop_token stop) {
        const auto device = state_.model.device();
        c10::impl::VirtualGuardImpl(device.type()).setDevice(device);  // or a call to CUDA would take up memory on GPU 0
        const auto begun = Clock::now();
        if (copied) copied->synchronize();
        const auto meet = [&] {
          busy_ = false;
          state_.comm.background_barrier(stop);
          busy_ = true;
        };
        const auto path =
            write_snapshot(run_dir_, state_.config.checkpoint, snapshot, {state_.comm.rank(), state_.comm.world(), meet});
        log_info(fmt::format("{}: saved asynchronously in {}; training waited for {:.0f} ms", path,
                             format_duration(ms_since(begun) / 1000), stall_ms));
      });
  written_ = write.get_future();
  under_way_ = true;
  writer_ = std::jthread(std::move(write));
}

std::shared_ptr<c10::Event> CheckpointWriter::copy_to_host(std::vector<TensorSlice>& slices) {
  const auto device = state_.model.device();
  const bool first = host_.empty();
  const auto copy_all = [&](bool asynchronous) {
    for (size_t i = 0; i < slices.size(); ++i) {
      auto& data = slices[i].data;
      if (first) host_.push_back(at::empty(data.sizes(), data.options().device(at::kCPU).pinned_memory(asynchronous)));
      host_[i].copy_(data, /*non_blocking=*/asynchronous);
      data = host_[i];
    }
  };
  if (device.is_cpu()) {
    copy_all(false);
    return nullptr;
  }
  // The host has just read from the device whether the state is finite, so all that made it is done.
  const c10::impl::VirtualGuardImpl backend(device.type());
  const c10::StreamGuard guard(backend.getStreamFromGlobalPool(device));
  copy_all(true);
  auto copied = std::make_shared<c10::Event>(device.type());
  copied->record(backend.getStream(device));
  state_.optimizer->wait_before_step(copied);
  return copied;
}

void CheckpointWriter::take_result() {
  if (!written_.valid() || written_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  try {
    written_.get();
  } catch (const StorageError&) {
    failure_ = std::current_exception();
  }
}

void CheckpointWriter::throw_failure() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void CheckpointWriter::check() {
  take_result();
  tolerate([&] { throw_failure(); });
}

CheckpointWriter::Progress CheckpointWriter::progress() {
  take_result();
  const bool pending = written_.valid(), busy = pending && busy_;
  auto votes = at::tensor({static_cast<int64_t>(pending), static_cast<int64_t>(busy)}).to(state_.model.device());
  state_.comm.all_reduce(votes);
  votes = votes.cpu();
  return {votes[0].item<int64_t>() == 0, busy && votes[1].item<int64_t>() < state_.comm.world()};
}

void CheckpointWriter::finish() {
  if (!under_way_) return;
  // By collectives, not by waiting for the thread: a rank that stops meanwhile is noticed.
  auto in_time = Clock::now();  // when this rank last was no later than the others
  for (auto now = progress(); !now.all_done; now = progress()) {
    if (!now.late) in_time = Clock::now();
    if (ms_since(in_time) > 1000 * state_.config.checkpoint.timeout_s) give_up();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  under_way_ = false;
  throw_failure();
}

void CheckpointWriter::give_up() {
  log_error(fmt::format(
      "rank {} has not written its part of {} within {:g} s after another rank (checkpoint.timeout_s): is its disk out of reach?",
      state_.comm.rank(), checkpoint_path(run_dir_, step_), state_.config.checkpoint.timeout_s));
  state_.comm.tell_failure();
  std::fflush(nullptr);
  _exit(kExitFailure);
}

}  // namespace scatterlm
