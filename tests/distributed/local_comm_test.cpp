#include <ATen/ATen.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "lib/distributed/comm_check.h"
#include "lib/distributed/shared_rank_status.h"
#include "lib/util/error.h"
#include "tests/distributed/ranks.h"

#include "tests/catch.h"

using namespace scatterlm;
using namespace scatterlm::test;

namespace {

const ExitCodes kBothFine = {0, 0};

}  // namespace

TEST_CASE("collectives are exact on integers, for every type, from no element to several slots") {
  for (const int64_t world : {2, 3}) {
    Ranks ranks(world);
    const auto codes = ranks.run([](Comm& comm) {
      for (const int64_t shard : {0, 1, 33, 150'001}) check_collectives(comm, at::kCPU, shard);
      return true;
    });
    REQUIRE(codes == ExitCodes(static_cast<size_t>(world), 0));
  }
}

TEST_CASE("sums run in rank order, bf16 in fp32: the same bits on every rank, and every time") {
  Ranks ranks(3);
  const auto codes = ranks.run([](Comm& comm) {
    at::manual_seed(1);
    const auto parts = at::randn({3, 1000});
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const auto rounded = parts.to(dtype);
      auto sum = rounded[comm.rank()].clone();
      comm.all_reduce(sum);
      const auto in_order = (rounded[0].to(at::kFloat) + rounded[1].to(at::kFloat) + rounded[2].to(at::kFloat)).to(dtype);
      if (!sum.equal(in_order)) return false;
    }
    return true;
  });
  REQUIRE(codes == ExitCodes(3, 0));
}

TEST_CASE("a yes of any rank reaches all ranks, at the same call") {
  Ranks ranks(2);
  const auto codes = ranks.run(
      [](Comm& comm) { return !comm.any(false) && comm.any(comm.rank() == 1) && comm.any(true) && !comm.any(false); });
  REQUIRE(codes == kBothFine);
}

TEST_CASE("times of collectives add up until they are taken: bytes are those through each link") {
  Ranks ranks(3);
  const auto codes = ranks.run([](Comm& comm) {
    const auto full = at::zeros({30}), part = at::zeros({10});
    for (int i = 0; i < 2; ++i) comm.reduce_scatter(full, part);
    comm.all_gather(full);
    const auto times = comm.take_times() / 2, none = comm.take_times();
    return times.reduce_scatter.link_bytes == 80 && times.all_gather.link_bytes == 40 && times.reduce_scatter.ms > 0 &&
           times.exposed_ms >= times.reduce_scatter.ms + times.all_gather.ms && none.exposed_ms == 0 && none.all_gather.ms == 0;
  });
  REQUIRE(codes == ExitCodes(3, 0));
}

TEST_CASE("a barrier holds until the last rank is there") {
  Ranks ranks(2);
  const auto codes = ranks.run([](Comm& comm) {
    comm.barrier();  // on a busy machine one rank may begin much later than the other
    const auto start = std::chrono::steady_clock::now();
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    comm.barrier();
    return std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(90);
  });
  REQUIRE(codes == kBothFine);
}

TEST_CASE("misuse is an error on the spot") {
  Ranks ranks(2);
  const auto codes = ranks.run([](Comm& comm) {
    const auto fails = [](const auto& call) {
      try {
        call();
        return false;
      } catch (const Error&) {
        return true;
      }
    };
    const auto full = at::zeros({8}), odd = at::zeros({7}), short_part = at::zeros({3}), doubles = at::zeros({4}, at::kDouble);
    return fails([&] { comm.reduce_scatter(full, short_part); }) && fails([&] { comm.reduce_scatter(full, doubles); }) &&
           fails([&] { comm.all_gather(odd); }) && fails([&] {
             comm.all_reduce(at::zeros({4, 4}).t());
           });
  });
  REQUIRE(codes == kBothFine);
}

TEST_CASE("ranks that call different collectives end at once") {
  Ranks ranks(2);
  const auto differ = [&](const std::function<void(Comm&)>& one, const std::function<void(Comm&)>& other) {
    return ranks.run([&](Comm& comm) {
      comm.barrier();
      (comm.rank() == 0 ? one : other)(comm);
      return true;
    });
  };
  const auto reduce = [](int64_t numel, at::ScalarType dtype) {
    return [=](Comm& comm) { comm.all_reduce(at::zeros({numel}, dtype)); };
  };
  const ExitCodes both_end = {kExitPeer, kExitPeer};
  REQUIRE(differ(reduce(5, at::kFloat), reduce(6, at::kFloat)) == both_end);
  REQUIRE(differ(reduce(5, at::kFloat), reduce(5, at::kLong)) == both_end);
  REQUIRE(differ(reduce(1 << 20, at::kFloat), [](Comm& comm) { comm.barrier(); }) == both_end);
  REQUIRE(differ(reduce(5, at::kFloat), [](Comm& comm) { comm.broadcast(at::zeros({5})); }) == both_end);
}

TEST_CASE("a rank that is killed, crashes or leaves ends the others") {
  Ranks ranks(3);
  const auto without_rank_1 = [&](const std::function<void()>& end) {
    return ranks.run([&](Comm& comm) {
      comm.barrier();
      if (comm.rank() == 1) end();
      comm.barrier();
      return true;
    });
  };
  REQUIRE(without_rank_1([] { raise(SIGKILL); }) == ExitCodes{kExitPeer, -SIGKILL, kExitPeer});
  REQUIRE(without_rank_1([] { _exit(3); }) == ExitCodes{kExitPeer, 3, kExitPeer});
  REQUIRE(without_rank_1([] { fail("disk full"); }) == ExitCodes{kExitPeer, 9, kExitPeer});
  const auto leaves = ranks.run([](Comm& comm) {
    if (comm.rank() == 1) return true;
    comm.barrier();
    return true;
  });
  REQUIRE(leaves == ExitCodes{kExitPeer, 0, kExitPeer});
}

TEST_CASE("a rank that stops or does not call ends the run after the timeout") {
  Ranks ranks(2);
  ranks.options.timeout_s = 0.5;
  const auto start = std::chrono::steady_clock::now();
  const auto busy = ranks.run([](Comm& comm) {
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
    comm.barrier();
    return true;
  });
  REQUIRE(busy == ExitCodes{kExitPeer, kExitPeer});
  ranks.options.timeout_s = 1.5;  // longer than it takes to be sure that it is stopped
  const auto stopped = ranks.run([](Comm& comm) {
    comm.barrier();
    if (comm.rank() == 1) raise(SIGSTOP);
    comm.barrier();
    return true;
  });
  REQUIRE(stopped == ExitCodes{kExitPeer, -SIGKILL});
  REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("a rank that reads or writes files has a timeout of its own, and only while it does") {
  Ranks ranks(2);
  ranks.options.timeout_s = 1;
  const auto run = [&](int storage_ms, int after_ms) {
    return ranks.run([=](Comm& comm) {
      comm.barrier();
      if (comm.rank() == 0) {
        {
          const StorageScope all(comm);
          const StorageScope part(comm);
          std::this_thread::sleep_for(std::chrono::milliseconds(storage_ms));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
      }
      comm.barrier();
      return true;
    });
  };
  REQUIRE(run(2500, 300) == kBothFine);  // what it does after that is counted from 0
  REQUIRE(run(0, 60'000) == ExitCodes{kExitPeer, kExitPeer});
  ranks.options.storage_timeout_s = 1.5;
  REQUIRE(run(60'000, 0) == ExitCodes{kExitPeer, kExitPeer});
}

TEST_CASE("until all are connected the start's own deadline holds") {
  Ranks ranks(2);
  ranks.options.start_timeout_s = 0.3;
  ranks.options.timeout_s = 60;
  const auto waiting = [&](bool connected) {
    return ranks.run_with_options([connected](const CommOptions& own) {
      Rendezvous rendezvous(own);
      SharedRankStatus status(own, rendezvous, std::vector<int64_t>(2), 0);
      if (connected) status.watchdog().started();
      status.watchdog().enter({});
      std::this_thread::sleep_for(std::chrono::seconds(1));
      return true;
    });
  };
  REQUIRE(waiting(false) == ExitCodes{kExitPeer, kExitPeer});
  REQUIRE(waiting(true) == kBothFine);
}

TEST_CASE("ranks of another identity or that do not come are named") {
  Ranks ranks(3);
  ranks.options.start_timeout_s = 1;
  const auto message = [&](const std::function<void(CommOptions&)>& change) {
    return ranks.run_with_options([&](CommOptions own) {
      change(own);
      try {
        make_comm(own);
        return false;
      } catch (const Error& error) {
        const std::string text = error.what();
        return text ==
                   "rank 2 differs from rank 0: 'train.seed = 7' against 'train.seed = 1'; start every rank with the same program, "
                   "configuration and data" ||
               text == "1 of 3 ranks (started by hand) did not come within 1 s (parallel.start_timeout_s): 1";
      }
    });
  };
  REQUIRE(message([](CommOptions& own) {
            own.identity = fmt::format("train.steps = 3\ntrain.seed = {}\n", own.launch_env.rank == 2 ? 7 : 1);
          }) == ExitCodes(3, 0));
  REQUIRE(message([](CommOptions& own) {
            if (own.launch_env.rank == 1) _exit(0);
          }) == ExitCodes(3, 0));
}
