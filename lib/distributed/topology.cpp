#include "lib/distributed/topology.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "lib/util/error.h"
#include "lib/util/escape.h"

namespace scatterlm {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string host_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, id);
  return id;
}

std::string machine_id() {
  const auto processes = std::filesystem::read_symlink("/proc/self/ns/pid").string();
  const char* nccl = std::getenv("NCCL_HOSTID");
  return fmt::format("{} {} {}", host_id(), processes, nccl == nullptr ? "" : nccl);
}

std::vector<int64_t> number_machines(const std::vector<std::string>& ids) {
  std::map<std::string, int64_t> numbers;
  std::vector<int64_t> result;
  for (const auto& id : ids) result.push_back(numbers.emplace(id, std::ssize(numbers)).first->second);
  return result;
}

bool is_halted(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string stat;
  std::getline(file, stat);
  const auto state = stat.rfind(") ") + 2;  // after the program's name, which may hold anything
  return state < stat.size() && (stat[state] == 'T' || stat[state] == 't');
}

void check_gpus(const std::vector<std::string>& gpus) {
  std::map<std::string, size_t> first;
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto [found, is_new] = first.emplace(gpus[rank], rank);
    if (is_new) continue;
    fail_user(
        "ranks {} and {} both have {}: start one rank per GPU; if CUDA_VISIBLE_DEVICES is set, it must name another "
        "GPU for each rank",
        found->second, rank, escape_control(gpus[rank].substr(gpus[rank].find(' ') + 1)));
  }
}

}  // namespace scatterlm
