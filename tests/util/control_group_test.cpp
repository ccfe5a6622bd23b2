#include "lib/util/control_group.h"

#include "tests/catch.h"
#include "tests/data/files.h"

using namespace scatterlm;

TEST_CASE("control group: version 2, the least of the process's group and those above it") {
  const TempDir root;
  root.write("proc/self/cgroup", "0::/job/rank\n");
  root.write("sys/fs/cgroup/memory.max", "90000\n");  // of a container
  REQUIRE(group_limit("memory", root / "") == 90000);
  root.write("sys/fs/cgroup/job/memory.max", "7000\n");
  root.write("sys/fs/cgroup/job/memory.current", "6500\n");
  root.write("sys/fs/cgroup/job/memory.stat", "anon 5000\ninactive_file 1000\nactive_file 300\n");
  root.write("sys/fs/cgroup/job/rank/memory.max", "max\n");
  root.write("sys/fs/cgroup/other/memory.max", "10\n");
  REQUIRE(group_limit("memory", root / "") == 7000);
  REQUIRE(group_room("memory", root / "") == 7000 - (6500 - 1300));
  REQUIRE(!group_limit("pids", root / ""));
}

TEST_CASE("control group: version 1, the controller's own folder") {
  const TempDir root;
  root.write("proc/self/cgroup", "9:pids:/p\n8:cpu,memory:/job/rank\n1:name=systemd:/\n0::/\n");
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  REQUIRE(!group_limit("memory", root / ""));
  root.write("sys/fs/cgroup/memory/job/rank/memory.limit_in_bytes", "5000\n");
  root.write("sys/fs/cgroup/memory/job/rank/memory.usage_in_bytes", "4000\n");
  root.write("sys/fs/cgroup/memory/job/rank/memory.stat", "active_file 50\ntotal_active_file 500\n");
  root.write("sys/fs/cgroup/pids/p/pids.max", "100\n");
  root.write("sys/fs/cgroup/pids/p/pids.current", "30\n");
  REQUIRE(group_limit("memory", root / "") == 5000);
  REQUIRE(group_room("memory", root / "") == 1500);
  REQUIRE(group_room("pids", root / "") == 70);
}

TEST_CASE("control group: without files there is no limit") {
  const TempDir root;
  REQUIRE(!group_limit("memory", root / ""));
}
