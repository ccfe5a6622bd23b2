// Which of the run's processes this one is: from the variables that a launcher sets.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace scatterlm {

using Environment = std::map<std::string, std::string>;

struct LaunchEnv {
  int64_t rank = 0, size = 1;
  int64_t local_rank = 0, local_size = 1;  ///< among the ranks of the same machine
  std::string address = "127.0.0.1";       ///< where the ranks meet: the store's host and port
  int64_t port = 29500;
  bool hosted_store = false;        ///< the launcher keeps the store; otherwise rank 0 does
  int64_t restart = 0;              ///< how often the launcher has started this group anew
  std::string started_by = "hand";  ///< for messages
};

/// The world that the variables describe; the first of these that is there counts: torchrun's and `scatterlm launch`'s (RANK,
/// WORLD_SIZE, ...), Open MPI's, MPICH's, Slurm's. None: one rank. Throws Error (exit code 2) naming the variable that is
/// missing, contradicts another one or is no number.
LaunchEnv find_launch_env(const Environment& environment);

Environment current_environment();

/// First host of Slurm's compressed list: "node[03-05,9],other" -> "node03".
std::string first_host(const std::string& node_list);

}  // namespace scatterlm
