#include "lib/distributed/topology.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "lib/util/error.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("machines are numbered by their first ranks, in whatever order these lie") {
  REQUIRE(number_machines({"x", "x", "x"}) == std::vector<int64_t>{0, 0, 0});
  REQUIRE(number_machines({"b", "a", "b", "c", "a"}) == std::vector<int64_t>{0, 1, 0, 2, 1});
}

TEST_CASE("a process knows its machine; NCCL_HOSTID makes it another one, on the same host") {
  unsetenv("NCCL_HOSTID");
  const auto id = machine_id(), host = host_id();
  REQUIRE(host.size() == 36);
  REQUIRE(machine_id() == id);
  setenv("NCCL_HOSTID", "second", 1);
  const auto other = machine_id();
  REQUIRE(host_id() == host);
  unsetenv("NCCL_HOSTID");
  REQUIRE(other != id);
}

TEST_CASE("a process that a signal has stopped is halted, one that sleeps is not") {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  REQUIRE_FALSE(is_halted(child));
  kill(child, SIGSTOP);
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  REQUIRE(is_halted(child));
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  REQUIRE_FALSE(is_halted(child));
}

TEST_CASE("two ranks on one GPU are named, on whatever machines they take themselves to be") {
  check_gpus({"host GPU-1", "host GPU-2", "elsewhere GPU-1"});
  REQUIRE_THROWS_WITH(check_gpus({"host GPU-1", "host GPU-2", "elsewhere GPU-2", "host GPU-2"}),
                      "ranks 1 and 3 both have GPU-2: start one rank per GPU; if CUDA_VISIBLE_DEVICES is set, it must name "
                      "another GPU for each rank");
  try {
    check_gpus({"host GPU-1", "host GPU-1"});
  } catch (const Error& error) {
    REQUIRE(error.code() == kExitUser);
  }
}
