#include "lib/distributed/store_messages.h"

#include "lib/distributed/rank_status.h"
#include "lib/distributed/shared_memory.h"
#include "lib/util/error.h"
#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("store: a heartbeat is read as it was written, and nothing else is one") {
  const MachineProgress progress{.rank = 3, .called = 4'000'000'000, .in_storage = true};
  REQUIRE(read_heartbeat(write_heartbeat(7, progress)) == progress);
  for (const char* other : {"", "finished", "1 2", "1 2 3", "1 2 3 4", "1 2 99999999999 0", "x 2 3 0"})
    REQUIRE(read_heartbeat(other) == std::nullopt);
}

TEST_CASE("store: identities that differ are told apart, however they end") {
  using Lines = std::pair<std::string, std::string>;
  REQUIRE(first_difference("a\nb = 1\n", "a\nb = 2\n") == Lines{"b = 1", "b = 2"});
  REQUIRE(first_difference("a\n", "a\nb\n") == Lines{"", "b"});
  REQUIRE(first_difference("a\n", "a") == Lines{"", ""});
  REQUIRE(first_difference("a", "a\n\n") == Lines{"", ""});
  REQUIRE(first_difference("\x1b[31m", "b") == Lines{"\\x1b[31m", "b"});
}

TEST_CASE("shared memory: what is not another rank's is not mapped") {
  const SharedMemory memory(4096);
  REQUIRE_NOTHROW(SharedMemory(memory.path(), 4096));
  REQUIRE_THROWS_WITH(SharedMemory(memory.path(), 8192),
                      Catch::Contains(": not the memory of another rank: 4096 bytes, must be 8192"));
}

TEST_CASE("shared memory: a damaged row is described, not trusted") {
  REQUIRE(describe({.operation = static_cast<Operation>(100)}) == "an unknown collective of 0 Float");
  REQUIRE(describe({.operation = static_cast<Operation>(-1)}) == "an unknown collective of 0 Float");
}
