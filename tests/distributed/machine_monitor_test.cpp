// Four processes of this machine that NCCL_HOSTID makes two machines: ranks 0 and 1, and ranks 2 and 3.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "lib/distributed/shared_rank_status.h"
#include "lib/distributed/topology.h"
#include "lib/util/error.h"
#include "tests/distributed/ranks.h"

#include "tests/catch.h"

using namespace scatterlm;
using namespace scatterlm::test;

namespace {

using std::chrono::milliseconds;

void nap(int ms) { std::this_thread::sleep_for(milliseconds(ms)); }

/// A rank without a Comm: a barrier stands for a collective.
struct Rank {
  int64_t rank;
  Rendezvous rendezvous;
  SharedRankStatus status;

  explicit Rank(const CommOptions& options)
      : rank(options.launch_env.rank),
        rendezvous(options),
        status(options, rendezvous, number_machines(rendezvous.collect("machine", machine_id())), 0) {
    status.watchdog().started();
  }

  void collective(const Call& call = {}) {
    const uint32_t number = status.watchdog().enter(call);
    status.barrier();
    status.watchdog().compare_calls();
    status.watchdog().leave(number);
  }
  void collectives(int count) {
    for (int i = 0; i < count; ++i) collective();
  }
};

struct Outcome {
  ExitCodes codes;
  std::string printed;  ///< to stderr, by all ranks
  double seconds;

  int count(const std::string& text) const {
    int found = 0;
    for (size_t at = printed.find(text); at != printed.npos; at = printed.find(text, at + 1)) ++found;
    return found;
  }
};

struct Machines : Ranks {
  int per_machine = 2;

  explicit Machines(int64_t count = 4) : Ranks(count) { options.timeout_s = options.start_timeout_s = 20; }

  Outcome run_ranks(const std::function<void(Rank&)>& body) {
    char path[] = "/tmp/scatterlm_test_XXXXXX";
    const int fd = mkostemp(path, O_APPEND);
    unlink(path);
    const auto start = std::chrono::steady_clock::now();
    const auto codes = run_with_options([&](const CommOptions& own) {
      dup2(fd, STDERR_FILENO);
      setenv("NCCL_HOSTID", fmt::format("machine {}", own.launch_env.rank / per_machine).c_str(), 1);
      Rank rank(own);
      body(rank);
      return true;
    });
    Outcome outcome{codes, "", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
    char buffer[4096];
    lseek(fd, 0, SEEK_SET);
    for (ssize_t size; (size = read(fd, buffer, sizeof(buffer))) > 0;)
      outcome.printed.append(buffer, static_cast<size_t>(size));
    close(fd);
    UNSCOPED_INFO(outcome.printed);
    return outcome;
  }
};

ExitCodes all_follow_but(size_t guilty, int code) {
  ExitCodes codes(4, kExitPeer);
  codes[guilty] = code;
  return codes;
}

int64_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace

TEST_CASE("machines: barriers wait for the ranks of all machines, and the end is quick") {
  Machines machines;
  const auto outcome = machines.run_ranks([](Rank& rank) {
    for (const RankStatus& row : rank.status.rows()) {
      if (row.age_s() > 60) fail("a rank has no heartbeat from the beginning");
    }
    for (const int64_t late : {1, 2, 3}) {
      rank.collective();
      const auto start = std::chrono::steady_clock::now();
      if (rank.rank == late) nap(600);
      rank.collective({Operation::kAllReduce, at::kFloat, 5});
      if (std::chrono::steady_clock::now() - start < milliseconds(400)) fail("did not wait for rank {}", late);
      std::jthread checkpoint([&](const std::stop_token& stop) {
        if (rank.rank == late) nap(600);
        rank.status.background_barrier(stop);
        if (std::chrono::steady_clock::now() - start < milliseconds(1000)) std::terminate();
      });
      rank.collectives(20);
      checkpoint.join();
      rank.collective();
    }
  });
  REQUIRE(outcome.codes == ExitCodes(4, 0));
  REQUIRE(outcome.printed == "");
  REQUIRE(outcome.seconds < 15);
}

TEST_CASE("machines: a background barrier that is asked to stop is an error on every rank that waits in it") {
  Machines machines;
  const auto outcome = machines.run_ranks([](Rank& rank) {
    std::stop_source source;
    std::jthread stopper([&] {
      nap(200);
      source.request_stop();
    });
    if (rank.rank == 3) return nap(400);
    try {
      rank.status.background_barrier(source.get_token());
    } catch (const Error& error) {
      if (std::string(error.what()) == "asked to stop while waiting for other ranks") return;
    }
    _exit(1);
  });
  REQUIRE(outcome.codes == ExitCodes(4, 0));
}

TEST_CASE("machines: a rank that is killed ends all at once, and each machine names it") {
  for (const size_t guilty : {0, 1, 2, 3}) {
    Machines machines;
    const auto outcome = machines.run_ranks([&](Rank& rank) {
      rank.collectives(3);
      if (rank.rank == static_cast<int64_t>(guilty)) raise(SIGKILL);
      rank.collectives(1000);
    });
    REQUIRE(outcome.codes == all_follow_but(guilty, -SIGKILL));
    const auto message = fmt::format("rank {} is gone: it was killed or has crashed", guilty);
    const size_t first = guilty / 2 * 2, reporter = guilty ^ 1;
    REQUIRE(outcome.count(fmt::format("{}; rank {}: step 0, ", message, first)) == 1);
    REQUIRE(outcome.count(fmt::format("{} (reported by rank {} on {}); rank {}: step 0, ", message, reporter, host_name(),
                                      2 - first)) == 1);
    REQUIRE(outcome.seconds < 8);
  }
}

TEST_CASE("machines: a rank that fails ends all") {
  Machines machines;
  const auto outcome = machines.run_ranks([&](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 3) fail("disk full");
    rank.collectives(1000);
  });
  REQUIRE(outcome.codes == all_follow_but(3, 9));
  REQUIRE(outcome.count("rank 3: disk full") == 1);
  REQUIRE(outcome.count("rank 3 fails; its own message says why (reported by rank 3 on ") == 1);
  REQUIRE(outcome.seconds < 8);
}

TEST_CASE("machines: a rank that leaves too early is named on both") {
  Machines machines;
  const auto outcome = machines.run_ranks([&](Rank& rank) {
    rank.collectives(3);
    if (rank.rank != 1) rank.collective();
  });
  REQUIRE(outcome.codes == all_follow_but(1, 0));
  REQUIRE(outcome.count("rank 1 has left the run; ") == 1);
  REQUIRE(outcome.count("rank 1 has left the run (reported by rank 0 on ") == 1);

  Machines small(2);
  small.per_machine = 1;
  small.options.timeout_s = 2;
  const auto whole_machine = small.run_ranks([&](Rank& rank) {
    rank.collectives(3);
    if (rank.rank != 1) rank.collective();
  });
  REQUIRE(whole_machine.codes == ExitCodes{kExitPeer, 0});
  REQUIRE(whole_machine.count(fmt::format("machine 1 ({}, rank 1) has left the run within 2 s", host_name())) == 1);
  REQUIRE(whole_machine.seconds < 9);
}

TEST_CASE("machines: a rank that stops is killed after the timeout, whether it sends the heartbeat or not") {
  for (const size_t guilty : {0, 2, 3}) {
    Machines machines;
    machines.options.timeout_s = 4;
    const auto outcome = machines.run_ranks([&](Rank& rank) {
      rank.collectives(3);
      if (rank.rank == static_cast<int64_t>(guilty)) raise(SIGSTOP);
      rank.collectives(1000);
    });
    REQUIRE(outcome.codes == all_follow_but(guilty, -SIGKILL));
    REQUIRE(outcome.count(fmt::format("rank {} is stopped, without a heartbeat for", guilty)) == 2);
    REQUIRE(outcome.count(fmt::format("rank {} is stopped: killed", guilty)) == 1);
    REQUIRE(outcome.seconds < 12);
  }
}

TEST_CASE("machines: a rank that does not call is named by a machine that has called") {
  Machines machines;
  machines.options.timeout_s = 2;
  const auto outcome = machines.run_ranks([&](Rank& rank) {
    rank.collectives(3);
    if (rank.rank >= 2) nap(30'000);
    rank.collective();
  });
  REQUIRE(outcome.codes == ExitCodes(4, kExitPeer));
  const auto message = fmt::format(
      "rank 2 of machine 1 ({}, ranks 2, 3) has not called the collective that the others wait in within 2 s "
      "(parallel.timeout_s)",
      host_name());
  REQUIRE(outcome.count(message) == 2);
  REQUIRE(outcome.seconds < 10);
}

TEST_CASE("machines: a rank that reads or writes files has a timeout of its own on all machines") {
  const auto run = [](double storage_timeout_s) {
    Machines machines;
    machines.options.timeout_s = 2;
    machines.options.storage_timeout_s = storage_timeout_s;
    return machines.run_ranks([](Rank& rank) {
      rank.collectives(3);
      rank.status.own().storage_scopes = rank.rank == 2;
      if (rank.rank == 2) nap(5000);
      rank.status.own().storage_scopes = 0;
      rank.collectives(3);
    });
  };
  REQUIRE(run(60).codes == ExitCodes(4, 0));
  const auto late = run(1);
  REQUIRE(late.codes == ExitCodes(4, kExitPeer));
  REQUIRE(late.count("in within 1 s (checkpoint.timeout_s)") > 0);
}

TEST_CASE("machines: when the rank that sends the heartbeat stops, the next one does; when it goes on, so does the run") {
  Machines machines;
  machines.options.timeout_s = 4;
  const auto outcome = machines.run_ranks([](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 2) raise(SIGSTOP);
    if (rank.rank != 2) nap(6000);
    if (rank.rank == 3) kill(rank.status.rows()[0].pid, SIGCONT);
    rank.collectives(3);
  });
  REQUIRE(outcome.codes == ExitCodes(4, 0));
  REQUIRE(outcome.printed == "");
}

TEST_CASE("machines: different calls within a machine are named, however many are before and after them") {
  const auto difference = [](int before, int after) {
    Machines machines;
    const auto outcome = machines.run_ranks([&](Rank& rank) {
      auto& watchdog = rank.status.watchdog();
      const auto call = [&](const Call& call) { watchdog.leave(watchdog.enter(call)); };  // waits for nobody, as NCCL's may
      for (int i = 0; i < before; ++i) call({Operation::kAllGather, at::kBFloat16, i});
      call({Operation::kAllReduce, at::kFloat, rank.rank < 3 ? 5 : 6});
      for (int i = 0; i < after; ++i) call({});
      rank.status.barrier();
      for (int i = 0; i < 2000; ++i, nap(5)) watchdog.compare_calls();
    });
    REQUIRE(outcome.codes == ExitCodes(4, kExitPeer));
    REQUIRE(outcome.seconds < 8);
    return outcome;
  };
  for (const int before : {0, 200})
    REQUIRE(difference(before, 50).count(fmt::format("collective {} is all_reduce of ", before + 1)) == 2);
  const int forgotten = 50, number = forgotten + 2;  // the rows hold calls from this one on
  REQUIRE(difference(0, static_cast<int>(kCalls) + forgotten)
              .count(fmt::format("some collective before number {} is not the same on ranks ", number)) == 2);
}

TEST_CASE("a row keeps its last calls") {
  const auto row = std::make_unique<RankStatus>();
  NumberedCall call;
  REQUIRE_FALSE(row->find(0));
  for (int64_t i = 1; i <= 2 * kCalls; ++i) row->keep(call = call.next({Operation::kBroadcast, at::kLong, i}));
  REQUIRE_FALSE(row->find(kCalls));
  REQUIRE_FALSE(row->find(2 * kCalls + 1));
  REQUIRE(row->find(kCalls + 1)->call.numel == kCalls + 1);
  REQUIRE(row->find(2 * kCalls)->chain == call.chain);
}

TEST_CASE("machines: one that sends no heartbeat is named after the timeout, in a collective or not") {
  for (const bool in_collective : {true, false}) {
    Machines machines(2);
    machines.per_machine = 1;
    machines.options.timeout_s = 3;
    const auto outcome = machines.run_ranks([&](Rank& rank) {
      rank.collectives(3);
      if (rank.rank == 1) raise(SIGKILL);  // nobody is left there to report it
      if (!in_collective) nap(30'000);
      rank.collective();
    });
    REQUIRE(outcome.codes == ExitCodes{kExitPeer, -SIGKILL});
    REQUIRE(outcome.count(fmt::format("machine 1 ({}, rank 1) has sent no heartbeat for", host_name())) == 1);
    REQUIRE(outcome.seconds < 10);
  }
}

TEST_CASE("machines: a store that is killed ends all at once, one that is stopped after the timeout") {
  Machines machines;
  const auto store = machines.store.pid();
  const auto outcome = machines.run_ranks([&](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 3) kill(store, SIGKILL);
    nap(15'000);
  });
  REQUIRE(outcome.codes == ExitCodes(4, kExitPeer));
  const auto keeper = fmt::format("the launcher at 127.0.0.1:{}, which keeps the store, ", machines.store.port());
  REQUIRE(outcome.count(keeper + "is gone: ") == 2);
  REQUIRE(outcome.seconds < 8);

  Machines stopped;
  stopped.options.timeout_s = 3;
  const auto silence = stopped.run_ranks([&](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 0) kill(stopped.store.pid(), SIGSTOP);
    nap(15'000);
  });
  REQUIRE(silence.codes == ExitCodes(4, kExitPeer));
  REQUIRE(silence.count("which keeps the store, has not answered for ") == 2);
  REQUIRE(silence.seconds < 12);
}

TEST_CASE("machines: rank 0 that keeps the store stays until the others are done, and takes them along when it is killed") {
  Machines machines;
  machines.options.launch_env.hosted_store = false;
  machines.options.launch_env.port = free_port();
  const auto good = machines.run_ranks([](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 2) nap(1500);
  });
  REQUIRE(good.codes == ExitCodes(4, 0));
  REQUIRE(good.printed == "");
  REQUIRE(good.seconds < 8);

  machines.options.launch_env.port = free_port();
  const auto killed = machines.run_ranks([](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 0) raise(SIGKILL);
    rank.collectives(1000);
  });
  REQUIRE(killed.codes == all_follow_but(0, -SIGKILL));
  REQUIRE(killed.count("rank 0 is gone: it was killed") == 1);
  REQUIRE(killed.count("which keeps the store, is gone: ") == 1);
  REQUIRE(killed.seconds < 8);

  machines.options.launch_env.port = free_port();
  const auto told = machines.run_ranks([](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 1) raise(SIGKILL);
    rank.collectives(1000);
  });
  REQUIRE(told.codes == all_follow_but(1, -SIGKILL));
  REQUIRE(told.count("rank 1 is gone: it was killed") == 2);
}

TEST_CASE("CPU ranks on several machines are refused") {
  Machines machines;
  const auto codes = machines.run_with_options([](const CommOptions& own) {
    setenv("NCCL_HOSTID", own.launch_env.rank < 3 ? "a" : "b", 1);
    try {
      make_comm(own);
      return false;
    } catch (const Error& error) {
      return error.code() == kExitUser &&
             std::string(error.what()) ==
                 "the 4 ranks are on 2 machines, and CPU ranks work on one alone: start them all on "
                 "one, or use GPUs";
    }
  });
  REQUIRE(codes == ExitCodes(4, 0));
}
