// Which rank this process is, from the environment variables that a launcher sets.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace scatterlm {

using Environment = std::map<std::string, std::string>;

struct LaunchEnv {
  int64_t rank = 0, size = 1;              ///< this rank, and the number of ranks
  int64_t local_rank = 0, local_size = 1;  ///< among the ranks of the same machine
  std::string address = "127.0.0.1";       ///< host name or address of the store (TCPStore) that the ranks connect to
  int64_t port = 29500;                    ///< of the store
  bool hosted_store = false;               ///< the launcher keeps the store; otherwise rank 0 does
  int64_t restart = 0;                     ///< how often the launcher has started these ranks again
  std::string job_token;                   ///< shared by the ranks of a job and secret; empty if the launcher sets none
  std::string started_by = "hand";         ///< name of the launcher, for messages
};

/// The variable of job_token, which `scatterlm launch` sets and which may be set for ranks that others start.
inline constexpr const char* kJobToken = "SCATTERLM_JOB_TOKEN";

/// Reads the variables of the first of these launchers that has set any: torchrun and `scatterlm launch` (RANK, WORLD_SIZE,
/// ...), Open MPI, MPICH, Slurm. Without a launcher there is one rank. Throws Error (exit code 2) naming the variable that is
/// missing, contradicts another one or is no number.
LaunchEnv find_launch_env(const Environment& environment);

Environment current_environment();

/// The first host of Slurm's compressed list: "node[03-05,9],other" -> "node03".
std::string first_host(const std::string& node_list);

}  // namespace scatterlm
