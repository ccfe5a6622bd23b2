// Which ranks are on the same machine, and on the same GPU.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace scatterlm {

/// The name of this host, for messages.
std::string host_name();

/// Tells hosts apart: equal for all processes of one host, in whatever container they run.
std::string host_id();

/// Equal for processes that can share memory and watch each other by process id. The environment variable NCCL_HOSTID is part
/// of it, as it is of what NCCL takes for a machine: tests set it to make one host look like several machines.
std::string machine_id();

/// The machine number of each rank, from machine_id() of each rank: counted from 0 in the order of their first ranks.
std::vector<int64_t> number_machines(const std::vector<std::string>& ids);

/// Whether a signal (SIGSTOP) or a debugger has stopped a process of this machine. A process that sleeps or waits is not
/// halted.
bool is_halted(int pid);

/// Throws Error (exit code 2) naming the ranks if two have the same GPU. `gpus`: per rank "HOST UUID".
void check_gpus(const std::vector<std::string>& gpus);

}  // namespace scatterlm
