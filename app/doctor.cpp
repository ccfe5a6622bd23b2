#include <CLI/CLI.hpp>
#include <iostream>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/distributed/comm_check.h"
#include "lib/train/execution_setup.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/hash.h"
#include "lib/util/log/log.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

void examine_comm(int64_t mebibytes) {
  const auto launch_env = find_launch_env(current_environment());
  if (launch_env.size == 1)
    fail_user("a single rank has no collectives to check; start several: scatterlm launch -n 2 doctor comm");
  log_as_rank(launch_env.rank);
  const auto setup = set_up_execution({}, launch_env);
  const auto comm =
      make_comm({.launch_env = launch_env,
                 .device = setup.device,
                 .identity = fmt::format("program = {}\n--mib = {}\n", hash_hex(read_file("/proc/self/exe")), mebibytes)});
  const bool prints = comm->rank() == 0;
  for (const int64_t shard : {1, 1000, 1 << 20}) check_collectives(*comm, setup.device, shard);
  comm->barrier();
  if (prints) {
    std::cout << fmt::format("{}, by {}: all values exact\n", describe(setup), comm->transport())
              << "all_reduce is timed by the host's clock, reduce_scatter and all_gather as `comm` in metrics.jsonl\n";
  }
  for (int64_t size = 1; size <= mebibytes; size *= 8) {
    for (const auto& row : measure_bandwidth(*comm, setup.device, size << 20)) {
      if (prints) {
        std::cout << fmt::format("{:15} {:>9} {:9.3f} ms {:8.2f} GB/s through each link\n", row.collective,
                                 format_bytes(static_cast<double>(row.bytes)), 1e3 * row.seconds, row.link_bytes_per_s / 1e9);
      }
    }
  }
}

}  // namespace

void add_doctor(CLI::App& app, int&) {
  auto* command = app.add_subcommand("doctor", "Check what a machine needs for training");
  command->require_subcommand(1);
  command->footer("Example:\n  scatterlm launch -n 2 doctor comm");
  auto* comm = command->add_subcommand("comm", "Check that ranks reach each other, that sums are right, and how fast they are");
  auto mebibytes = std::make_shared<int64_t>(64);
  comm->add_option("--mib", *mebibytes, "Largest tensor to measure")->capture_default_str()->check(in_range(1, 1 << 14));
  comm->footer("Example:\n  scatterlm launch -n 8 doctor comm --mib 1024");
  comm->callback([mebibytes] { examine_comm(*mebibytes); });
}

}  // namespace scatterlm
