// Which ranks are on the same machine, and on the same GPU.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace scatterlm {

/// The host that this process runs on, whatever it is in.
std::string host_id();

/// Equal for processes that can share memory and watch each other. NCCL_HOSTID is in it, as in what NCCL takes for a machine:
/// so groups of one host can play several.
std::string machine_id();

/// The machine of each rank by the ids of all, from 0 in the order of their first ranks.
std::vector<int64_t> number_machines(const std::vector<std::string>& ids);

/// Whether a signal or a debugger keeps a process of this machine from running. One that only waits for its turn is not halted.
bool is_halted(int pid);

/// Throws Error (exit code 2) naming the ranks if two have the same GPU. By rank, what tells GPUs of all machines apart.
void check_gpus(const std::vector<std::string>& gpus);

}  // namespace scatterlm
