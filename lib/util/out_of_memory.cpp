#include "lib/util/out_of_memory.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <new>
#include <regex>

#include "lib/util/text.h"

namespace scatterlm {

std::optional<std::string> failed_allocation(const std::exception& error) {
  const std::string text = error.what();
  const bool is_gpu = dynamic_cast<const c10::OutOfMemoryError*>(&error) || text.find("CUDA error: out of memory") != text.npos;
  const bool is_cpu = dynamic_cast<const std::bad_alloc*>(&error) || text.find("DefaultCPUAllocator") != text.npos;
  if (!is_gpu && !is_cpu) return std::nullopt;
  const char* place = is_gpu ? "on the GPU" : "in the memory of this machine";
  std::smatch amount;
  // "Tried to allocate 20.00 GiB." (CUDA), "you tried to allocate 2199023255552 bytes." (CPU)
  if (!std::regex_search(text, amount, std::regex("[Tt]ried to allocate ([0-9.]+) (bytes|[KMGT]iB)")))
    return fmt::format("not enough memory for an allocation {}", place);
  const auto size =
      amount[2] == "bytes" ? format_bytes(std::stod(amount[1])) : fmt::format("{} {}", amount[1].str(), amount[2].str());
  return fmt::format("tried to allocate {} {}", size, place);
}

}  // namespace scatterlm
