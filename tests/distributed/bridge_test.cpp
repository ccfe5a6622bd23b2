// Four processes of this machine that play two: ranks 0 and 1, and ranks 2 and 3.
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

/// A rank without a Comm: a meeting stands for a collective.
struct Rank {
  int64_t rank;
  Rendezvous rendezvous;
  SharedRankStatus board;

  explicit Rank(const CommOptions& options)
      : rank(options.world.rank),
        rendezvous(options),
        board(options, rendezvous, number_machines(rendezvous.collect("machine", machine_id())), 0) {
    board.watchdog().started();
  }

  const RankStatus& row(int64_t other) { return board.rows()[static_cast<size_t>(other)]; }
  void collective(const Call& call = {}) {
    const uint32_t number = board.watchdog().enter(call);
    board.meet();
    board.watchdog().compare_calls();
    board.watchdog().leave(number);
  }
  void collectives(int count) {
    for (int i = 0; i < count; ++i) collective();
  }
  /// Whether it came to hold within seconds.
  template <class F>
  static bool becomes(F condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) nap(10);
    return condition();
  }
};

struct Outcome {
  ExitCodes codes;
  std::string said;  ///< on stderr, by all ranks
  double seconds;

  int count(const std::string& text) const {
    int found = 0;
    for (size_t at = said.find(text); at != said.npos; at = said.find(text, at + 1)) ++found;
    return found;
  }
};

struct Machines : Ranks {
  int per_machine = 2;

  explicit Machines(int64_t count = 4) : Ranks(count) { options.timeout_s = options.start_timeout_s = 20; }

  Outcome play(const std::function<void(Rank&)>& body) {
    char path[] = "/tmp/scatterlm_test_XXXXXX";
    const int fd = mkostemp(path, O_APPEND);
    unlink(path);
    const auto start = std::chrono::steady_clock::now();
    const auto codes = run_with_options([&](const CommOptions& own) {
      dup2(fd, STDERR_FILENO);
      setenv("NCCL_HOSTID", fmt::format("machine {}", own.world.rank / per_machine).c_str(), 1);
      Rank rank(own);
      body(rank);
      return true;
    });
    Outcome outcome{codes, "", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
    char buffer[4096];
    lseek(fd, 0, SEEK_SET);
    for (ssize_t size; (size = read(fd, buffer, sizeof(buffer))) > 0;) outcome.said.append(buffer, static_cast<size_t>(size));
    close(fd);
    UNSCOPED_INFO(outcome.said);
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

TEST_CASE("machines: rows arrive, meetings hold, and the end is quick") {
  Machines machines;
  const auto outcome = machines.play([](Rank& rank) {
    for (const RankStatus& row : rank.board.rows()) {
      if (row.age_s() > 60) fail("a rank has no heartbeat from the beginning");
    }
    rank.board.watchdog().set_step(10 + rank.rank);
    const auto start = std::chrono::steady_clock::now();
    if (rank.rank == 3) nap(300);
    rank.collective({Operation::kAllReduce, at::kFloat, 5});
    if (std::chrono::steady_clock::now() - start < milliseconds(290)) fail("did not wait for rank 3");
    rank.collectives(20);
    const bool arrived = Rank::becomes([&] {
      bool all = true;
      for (int64_t other = 0; other < 4; ++other) {
        const RankStatus& row = rank.row(other);
        const auto first = row.find(1);
        all = all && row.step == 10 + other && row.called >= 21 && row.done >= 21 && row.age_s() < 1 && first &&
              first->call == Call{Operation::kAllReduce, at::kFloat, 5};
      }
      return all;
    });
    if (!arrived) fail("rows did not arrive");
    rank.collective();
  });
  REQUIRE(outcome.codes == ExitCodes(4, 0));
  REQUIRE(outcome.said == "");
  REQUIRE(outcome.seconds < 8);
}

TEST_CASE("machines: a rank that is killed ends all at once, and each machine names it") {
  for (const size_t guilty : {0, 1, 2, 3}) {
    Machines machines;
    const auto outcome = machines.play([&](Rank& rank) {
      rank.collectives(3);
      if (rank.rank == static_cast<int64_t>(guilty)) raise(SIGKILL);
      rank.collectives(1000);
    });
    REQUIRE(outcome.codes == all_follow_but(guilty, -SIGKILL));
    REQUIRE(outcome.count(fmt::format("rank {} is gone: it was killed or has crashed; rank 0: step 0, ", guilty)) == 2);
    REQUIRE(outcome.seconds < 8);
  }
}

TEST_CASE("machines: a rank that fails ends all") {
  Machines machines;
  const auto outcome = machines.play([&](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 3) fail("disk full");
    rank.collectives(1000);
  });
  REQUIRE(outcome.codes == all_follow_but(3, 9));
  REQUIRE(outcome.count("rank 3: disk full") == 1);
  REQUIRE(outcome.count("rank 3 fails; its own message says why; rank 0: ") == 1);
  REQUIRE(outcome.seconds < 8);
}

TEST_CASE("machines: a rank that leaves too early is named on both") {
  Machines machines;
  const auto outcome = machines.play([&](Rank& rank) {
    rank.collectives(3);
    if (rank.rank != 1) rank.collective();
  });
  REQUIRE(outcome.codes == all_follow_but(1, 0));
  REQUIRE(outcome.count("rank 1 has left the run; ") == 2);

  Machines small(2);
  small.per_machine = 1;
  const auto without_neighbours = small.play([&](Rank& rank) {
    rank.collectives(3);
    if (rank.rank != 1) rank.collective();
  });
  REQUIRE(without_neighbours.codes == ExitCodes{kExitPeer, 0});
  REQUIRE(without_neighbours.count("rank 1 has left the run; ") == 1);
}

TEST_CASE("machines: a rank that stops is killed after the timeout, whether it carries rows or not") {
  for (const size_t guilty : {0, 2, 3}) {
    Machines machines;
    machines.options.timeout_s = 4;
    const auto outcome = machines.play([&](Rank& rank) {
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

TEST_CASE("machines: when the rank that carries rows stops, the next one does; when it goes on, so does the run") {
  Machines machines;
  const auto outcome = machines.play([&](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 2) raise(SIGSTOP);
    const auto rows = [&](auto condition) {
      if (!Rank::becomes(condition)) fail("rows of machine 1 do not say so");
    };
    if (rank.rank == 0) {
      rows([&] { return rank.row(2).age_s() > 2 && rank.row(3).age_s() < 1; });
      rank.board.watchdog().set_step(7);
    }
    if (rank.rank == 3) {
      rows([&] { return rank.row(0).step == 7; });
      kill(rank.row(2).pid, SIGCONT);
    }
    rank.collectives(3);
  });
  REQUIRE(outcome.codes == ExitCodes(4, 0));
  REQUIRE(outcome.said == "");
}

TEST_CASE("machines: different calls are named, however many are before and after them") {
  const auto play = [](int before, int after) {
    Machines machines;
    const auto outcome = machines.play([&](Rank& rank) {
      auto& watchdog = rank.board.watchdog();
      const auto call = [&](const Call& call) { watchdog.leave(watchdog.enter(call)); };  // waits for nobody, as NCCL's may
      for (int i = 0; i < before; ++i) call({Operation::kAllGather, at::kBFloat16, i});
      call({Operation::kAllReduce, at::kFloat, rank.rank < 2 ? 5 : 6});
      for (int i = 0; i < after; ++i) call({});
      rank.board.meet();  // now all calls of all ranks are known
      for (int i = 0; i < 2000; ++i, nap(5)) watchdog.compare_calls();
    });
    REQUIRE(outcome.codes == ExitCodes(4, kExitPeer));
    REQUIRE(outcome.seconds < 8);
    return outcome;
  };
  for (const int before : {0, 200})
    REQUIRE(play(before, 50).count(fmt::format("collective {} is all_reduce of ", before + 1)) >= 1);
  REQUIRE(play(0, 300).count("some collective before number 222 is not the same on ranks ") >= 1);
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

TEST_CASE("machines: one that falls silent is named after the timeout") {
  Machines machines(2);
  machines.per_machine = 1;
  machines.options.timeout_s = 3;
  const auto outcome = machines.play([](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 1) raise(SIGKILL);  // nobody is left there to say so
    rank.collective();
  });
  REQUIRE(outcome.codes == ExitCodes{kExitPeer, -SIGKILL});
  REQUIRE(outcome.count("rank 1 is stopped, without a heartbeat for") == 1);
  REQUIRE(outcome.seconds < 10);
}

TEST_CASE("machines: a store that is killed ends all at once, one that is stopped after the timeout") {
  Machines machines;
  const auto store = machines.store.pid();
  const auto outcome = machines.play([&](Rank& rank) {
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
  const auto silence = stopped.play([&](Rank& rank) {
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
  machines.options.world.hosted_store = false;
  machines.options.world.port = free_port();
  const auto good = machines.play([](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 2) nap(1500);
  });
  REQUIRE(good.codes == ExitCodes(4, 0));
  REQUIRE(good.said == "");
  REQUIRE(good.seconds < 8);

  machines.options.world.port = free_port();
  const auto killed = machines.play([](Rank& rank) {
    rank.collectives(3);
    if (rank.rank == 0) raise(SIGKILL);
    rank.collectives(1000);
  });
  REQUIRE(killed.codes == all_follow_but(0, -SIGKILL));
  REQUIRE(killed.count("rank 0 is gone: it was killed") == 1);
  REQUIRE(killed.count("which keeps the store, is gone: ") == 1);
  REQUIRE(killed.seconds < 8);

  machines.options.world.port = free_port();
  const auto told = machines.play([](Rank& rank) {
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
    setenv("NCCL_HOSTID", own.world.rank < 3 ? "a" : "b", 1);
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
