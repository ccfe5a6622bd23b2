#include "lib/distributed/launch_env.h"

#include "lib/util/error.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

const Environment kTorchrun = {
    {"RANK", "5"},           {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "node1"},
    {"MASTER_PORT", "29400"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "1234"}};
const Environment kSlurm = {{"SLURM_PROCID", "9"},
                            {"SLURM_NTASKS", "16"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NTASKS_PER_NODE", "8"},
                            {"SLURM_JOB_NODELIST", "gpu[07-08]"},
                            {"SLURM_JOB_ID", "4711"}};

Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) {
    if (value == "unset") {
      environment.erase(name);
    } else {
      environment[name] = value;
    }
  }
  return environment;
}

}  // namespace

TEST_CASE("without a launcher there is one rank") {
  const auto env = find_launch_env({{"HOME", "/root"}, {"SLURM_NTASKS", "8"}, {"MASTER_ADDR", "elsewhere"}});
  REQUIRE(env.rank == 0);
  REQUIRE(env.size == 1);
  REQUIRE(env.local_size == 1);
}

TEST_CASE("torchrun: ranks, address, who keeps the store, restarts") {
  auto env = find_launch_env(kTorchrun);
  REQUIRE(env.rank == 5);
  REQUIRE(env.size == 8);
  REQUIRE(env.local_rank == 1);
  REQUIRE(env.local_size == 4);
  REQUIRE(env.address == "node1");
  REQUIRE(env.port == 29400);
  REQUIRE_FALSE(env.hosted_store);
  REQUIRE(env.restart == 0);
  env = find_launch_env(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  REQUIRE(env.hosted_store);
  REQUIRE(env.restart == 2);
  REQUIRE_FALSE(find_launch_env(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).hosted_store);
}

TEST_CASE("Open MPI: one machine needs no address, several do; jobs get ports of their own") {
  const auto env = find_launch_env(kOpenMpi);
  REQUIRE(env.rank == 1);
  REQUIRE(env.size == 2);
  REQUIRE(env.address == "127.0.0.1");
  REQUIRE(env.port >= 10000);
  REQUIRE(env.port < 30000);
  REQUIRE(find_launch_env(with(kOpenMpi, {{"PMIX_NAMESPACE", "1235"}})).port != env.port);
  REQUIRE(find_launch_env(with(kOpenMpi, {{"MASTER_PORT", "5"}})).port == 5);
  const Environment two_machines = {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  REQUIRE(find_launch_env(with(with(kOpenMpi, two_machines), {{"MASTER_ADDR", "node1"}})).address == "node1");
  REQUIRE_THROWS_WITH(find_launch_env(with(kOpenMpi, two_machines)),
                      ContainsSubstring("mpirun does not say where rank 0 is: set MASTER_ADDR for all"));
}

TEST_CASE("MPICH and Intel MPI, also under Slurm") {
  const Environment mpich = {
      {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}, {"MASTER_PORT", "5"}};
  for (const auto& more : {Environment{}, kSlurm}) {
    const auto env = find_launch_env(with(with(mpich, more), {{"MASTER_ADDR", "node1"}}));
    REQUIRE(env.rank == 3);
    REQUIRE(env.size == 4);
    REQUIRE(env.local_rank == 1);
    REQUIRE(env.local_size == 2);
    REQUIRE(env.address == "node1");
  }
  REQUIRE_THROWS_WITH(find_launch_env(mpich), ContainsSubstring("mpiexec does not say where rank 0 is"));
  REQUIRE_THROWS_WITH(find_launch_env(with(mpich, {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "unset"}})),
                      ContainsSubstring("mpiexec gives the job no name that would tell it from others: set MASTER_PORT"));
  // srun --mpi=pmi2 sets some of them.
  REQUIRE(find_launch_env(with(kSlurm, {{"PMI_RANK", "9"}, {"PMI_SIZE", "16"}})).started_by == "srun");
}

TEST_CASE("Slurm: the first node, the job's port, the step's tasks before the job's") {
  const auto env = find_launch_env(kSlurm);
  REQUIRE(env.rank == 9);
  REQUIRE(env.size == 16);
  REQUIRE(env.local_rank == 1);
  REQUIRE(env.local_size == 8);
  REQUIRE(env.address == "gpu07");
  REQUIRE(find_launch_env(with(kSlurm, {{"SLURM_JOB_ID", "4712"}})).port != env.port);
  const auto step = find_launch_env(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "10"}, {"SLURM_STEP_NODELIST", "gpu12"}}));
  REQUIRE(step.size == 10);
  const Environment small = {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}};
  REQUIRE(find_launch_env(with(kSlurm, small)).local_size == 2);
  REQUIRE(step.address == "gpu12");
  const Environment alone = {{"SLURM_PROCID", "0"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_NTASKS", "1"},
                             {"SLURM_JOB_NODELIST", "unset"},
                             {"SLURM_NTASKS_PER_NODE", "unset"}};
  REQUIRE(find_launch_env(with(kSlurm, alone)).size == 1);
}

TEST_CASE("Slurm: how many tasks this node has, with and without --ntasks-per-node") {
  const auto plain = with(kSlurm, {{"SLURM_NTASKS_PER_NODE", "unset"}});
  const auto local_size = [&](const Environment& changes) { return find_launch_env(with(plain, changes)).local_size; };
  REQUIRE(local_size({{"SLURM_NNODES", "1"}}) == 16);
  REQUIRE(local_size({{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NNODES", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "16"}}) == 16);
  const auto of_node = [&](const char* list, const char* node) {
    return local_size({{"SLURM_NNODES", "4"}, {"SLURM_STEP_TASKS_PER_NODE", list}, {"SLURM_NODEID", node}});
  };
  REQUIRE(of_node("8(x2)", "1") == 8);
  REQUIRE(of_node("4,2(x3),6", "0") == 4);
  REQUIRE(of_node("4,2(x3),6", "3") == 2);
  REQUIRE(of_node("4,2(x3),6", "4") == 6);
  REQUIRE(local_size({{"SLURM_NNODES", "2"}}) == 2);  // nobody says: at least the tasks up to this one
}

TEST_CASE("torchrun's variables count before Open MPI's, and those before Slurm's") {
  REQUIRE(find_launch_env(with(kTorchrun, kOpenMpi)).size == 8);
  REQUIRE(find_launch_env(with(kOpenMpi, kSlurm)).size == 2);
}

TEST_CASE("the first host of a list of nodes") {
  REQUIRE(first_host("node1") == "node1");
  REQUIRE(first_host("node1,node2") == "node1");
  REQUIRE(first_host("node[03-05,9],other[1-2]") == "node03");
  REQUIRE(first_host("a[7,9]-x,b") == "a7-x");
  REQUIRE(first_host("r[1-2]n[3-4]") == "r1n3");
  REQUIRE_THROWS_WITH(first_host("node[03"), ContainsSubstring("']' is missing"));
}

TEST_CASE("contradictions name the variable, its value and the way out") {
  const auto text_of = [](const Environment& environment) -> std::string {
    try {
      find_launch_env(environment);
      return "no error";
    } catch (const Error& error) {
      REQUIRE(error.code() == kExitUser);
      return error.what();
    }
  };
  REQUIRE(text_of(with(kTorchrun, {{"WORLD_SIZE", "unset"}})) ==
          "WORLD_SIZE is not set, though other variables of torchrun are: start every rank with torchrun, or unset them all");
  REQUIRE(text_of(with(kTorchrun, {{"RANK", "8"}})) == "RANK=8 (set by torchrun): must be an integer from 0 to 7");
  REQUIRE(text_of(with(kTorchrun, {{"RANK", "five"}})) == "RANK=five (set by torchrun): must be an integer from 0 to 7");
  REQUIRE(text_of(with(kTorchrun, {{"LOCAL_RANK", "6"}})) == "LOCAL_RANK=6 (set by torchrun): must be an integer from 0 to 5");
  REQUIRE(text_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "1"}})) ==
          "LOCAL_WORLD_SIZE=1 (set by torchrun): must be an integer from 2 to 1048576");
  REQUIRE(text_of(with(kTorchrun, {{"MASTER_PORT", "99999"}})) ==
          "MASTER_PORT=99999 (set by torchrun): must be an integer from 1 to 65535");
  REQUIRE(text_of(with(kTorchrun, {{"MASTER_ADDR", ""}})).find("MASTER_ADDR is not set") == 0);
  REQUIRE(text_of(with(kSlurm, {{"SLURM_JOB_NODELIST", "unset"}})).find("SLURM_JOB_NODELIST is not set") == 0);
  for (const char* list : {"8", "8(x1)", "1(x4)", "32(x2)", "eight(x2)", "x8(x2)"}) {
    const Environment tasks = {{"SLURM_STEP_TASKS_PER_NODE", list}, {"SLURM_NODEID", "1"}};
    REQUIRE(
        text_of(with(kSlurm, tasks)) ==
        fmt::format("SLURM_STEP_TASKS_PER_NODE={} (set by srun): does not say how many tasks node 1 has, task 1 of it among "
                    "them; unset it to do without",
                    list));
  }
}
