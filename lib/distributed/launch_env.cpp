#include "lib/distributed/launch_env.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <regex>

#include "lib/util/error.h"

namespace scatterlm {
namespace {

/// The variables that one launcher sets.
class Variables {
 public:
  Variables(const Environment& environment, std::string launcher) : environment_(environment), launcher_(std::move(launcher)) {}

  std::optional<std::string> text(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
  }

  std::string required(const std::string& name) const {
    if (const auto value = text(name)) return *value;
    fail_user("{} is not set, though other variables of {} are: start every rank with {}, or unset them all", name, launcher_,
              launcher_);
  }

  int64_t number(const std::string& name, int64_t low, int64_t high) const {
    const auto value = required(name);
    int64_t result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || result < low || result > high) {
      fail_user("{}={} (set by {}): must be an integer from {} to {}", name, value, launcher_, low, high);
    }
    return result;
  }
  int64_t number_or(const std::string& name, int64_t low, int64_t high, int64_t otherwise) const {
    return text(name) ? number(name, low, high) : otherwise;
  }

  const std::string& launcher() const { return launcher_; }

 private:
  const Environment& environment_;
  std::string launcher_;
};

constexpr int64_t kMostRanks = 1 << 20, kHighestPort = 65535;

/// Names of the variables that hold the four numbers; a launcher's list of them is the whole difference.
struct Names {
  const char *rank, *size, *local_rank, *local_size;
};

LaunchEnv read_ranks(const Variables& variables, const Names& names) {
  LaunchEnv env;
  env.started_by = variables.launcher();
  env.job_token = variables.text(kJobToken).value_or("");
  env.size = variables.number(names.size, 1, kMostRanks);
  env.rank = variables.number(names.rank, 0, env.size - 1);
  env.local_rank = variables.number(names.local_rank, 0, env.rank);
  // Without its number of ranks a machine has at least those up to this one; Slurm's is of the job, a step may be smaller.
  env.local_size =
      std::min(env.size, variables.number_or(names.local_size, env.local_rank + 1, kMostRanks, env.local_rank + 1));
  return env;
}

/// A port for each job, so that two jobs on one machine do not connect to each other; below the ports that systems assign by
/// themselves.
int64_t port_of_job(const std::string& job) { return 10000 + static_cast<int64_t>(std::hash<std::string>()(job) % 20000); }

LaunchEnv from_torchrun(const Variables& variables) {
  LaunchEnv env = read_ranks(variables, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  if (env.size > 1) {
    env.address = variables.required("MASTER_ADDR");
    env.port = variables.number("MASTER_PORT", 1, kHighestPort);
  }
  env.hosted_store = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  env.restart = variables.number_or("TORCHELASTIC_RESTART_COUNT", 0, kMostRanks, 0);
  return env;
}

LaunchEnv from_mpi(const Variables& variables, const Names& names) {
  LaunchEnv env = read_ranks(variables, names);
  if (const auto address = variables.text("MASTER_ADDR")) {
    env.address = *address;
  } else if (env.local_size < env.size) {
    fail_user(
        "the {} ranks are on several machines and {} does not say where rank 0 is: set MASTER_ADDR for all (Open MPI: -x "
        "MASTER_ADDR=HOST, MPICH: -genv MASTER_ADDR HOST)",
        env.size, variables.launcher());
  }
  const auto job = variables.text("PMIX_NAMESPACE");
  if (!job && !variables.text("MASTER_PORT")) {
    fail_user(
        "{} gives the job no name that would tell it from others: set MASTER_PORT, a free one, for all ranks (MPICH: -genv "
        "MASTER_PORT 29500)",
        variables.launcher());
  }
  env.port = variables.number_or("MASTER_PORT", 1, kHighestPort, port_of_job(job.value_or("")));
  return env;
}

/// Tasks of a node in Slurm's compressed list: "4,2(x3)" is 4, 2, 2, 2. None if the list is no such thing or too short.
std::optional<int64_t> tasks_of_node(const std::string& list, int64_t node) {
  static const std::regex entry(R"((\d{1,7})(?:\(x(\d{1,7})\))?(?:,|$))");
  constexpr auto kWithoutGaps = std::regex_constants::match_continuous;
  for (std::sregex_iterator match(list.begin(), list.end(), entry, kWithoutGaps), end; match != end; ++match) {
    const int64_t nodes = (*match)[2].matched ? std::stoll((*match)[2]) : 1;
    if (node < nodes) return std::stoll((*match)[1]);
    node -= nodes;
  }
  return std::nullopt;
}

/// SLURM_NTASKS_PER_NODE is set only if --ntasks-per-node was given; the variables of the step count before it.
int64_t local_size_in_slurm(const Variables& variables, const LaunchEnv& env) {
  const char* nodes = variables.text("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  if (variables.number_or(nodes, 1, kMostRanks, 0) == 1) return env.size;
  const char* name = "SLURM_STEP_TASKS_PER_NODE";
  const auto list = variables.text(name);
  if (!list) return env.local_size;
  const int64_t node = variables.number("SLURM_NODEID", 0, kMostRanks);
  const auto tasks = tasks_of_node(*list, node);
  if (!tasks || *tasks <= env.local_rank || *tasks > env.size) {
    fail_user("{}={} (set by srun): does not say how many tasks node {} has, task {} of it among them; unset it to do without",
              name, *list, node, env.local_rank);
  }
  return *tasks;
}

LaunchEnv from_slurm(const Variables& variables) {
  // A step (srun) may have fewer tasks than the job; the batch script itself is no step.
  const bool in_step = variables.text("SLURM_STEP_NUM_TASKS").has_value();
  LaunchEnv env = read_ranks(
      variables, {"SLURM_PROCID", in_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"});
  if (env.size == 1) return env;
  env.local_size = local_size_in_slurm(variables, env);
  const auto list = variables.text("SLURM_STEP_NODELIST");
  env.address = variables.text("MASTER_ADDR").value_or(first_host(list ? *list : variables.required("SLURM_JOB_NODELIST")));
  const auto job = variables.required("SLURM_JOB_ID") + "." + variables.text("SLURM_STEP_ID").value_or("");
  env.port = variables.number_or("MASTER_PORT", 1, kHighestPort, port_of_job(job));
  return env;
}

}  // namespace

LaunchEnv find_launch_env(const Environment& environment) {
  const auto has = [&](const char* name) { return environment.contains(name); };
  if (has("RANK") || has("WORLD_SIZE"))
    return from_torchrun({environment, has("SCATTERLM_LAUNCH") ? "scatterlm launch" : "torchrun"});
  if (has("OMPI_COMM_WORLD_RANK") || has("OMPI_COMM_WORLD_SIZE"))
    return from_mpi({environment, "mpirun"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                              "OMPI_COMM_WORLD_LOCAL_SIZE"});
  // MPICH, Intel MPI. Slurm may set the first two as well.
  if (has("PMI_RANK") && has("MPI_LOCALRANKID"))
    return from_mpi({environment, "mpiexec"}, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  // An interactive allocation has SLURM_NTASKS as well, but no process number.
  if (has("SLURM_PROCID")) return from_slurm({environment, "srun"});
  return {};
}

Environment current_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != text.npos) result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::string first_host(const std::string& node_list) {
  const auto bracket = node_list.find_first_of("[,");
  if (bracket == node_list.npos || node_list[bracket] == ',') return node_list.substr(0, bracket);
  const auto close = node_list.find(']', bracket);
  if (close == node_list.npos) fail_user("the list of nodes '{}' (set by srun): ']' is missing", node_list);
  const auto first = node_list.substr(bracket + 1, node_list.find_first_of("-,]", bracket) - bracket - 1);
  return node_list.substr(0, bracket) + first + first_host(node_list.substr(close + 1));
}

}  // namespace scatterlm
