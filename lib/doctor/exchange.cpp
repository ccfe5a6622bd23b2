#include "lib/doctor/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lib/distributed/rank_process.h"
#include "lib/util/gpu.h"

namespace scatterlm::doctor {
namespace {

/// "[0] scatterlm: error: rank 0: text" -> "text"
std::string without_prefixes(const std::string& line) {
  const auto error = line.rfind("error: ");
  return error == line.npos ? line : line.substr(error + 7);
}

struct Output {
  std::vector<std::string> lines, errors;

  /// The part of the last line that begins with this word, from its figure on.
  std::string figure(const std::string& word) const {
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
      const auto speed = line->find(" GB/s");
      if (line->find(word) == line->npos || speed == line->npos) continue;
      const auto begin = line->rfind(' ', speed - 1) + 1;
      return line->substr(begin, speed + 5 - begin);
    }
    return "unknown";
  }
};

}  // namespace

Finding check_exchange(double timeout_s) {
  const auto ranks = std::max<size_t>(2, gpus().size());
  Finding finding{.subject = "exchange"};
  const char* advice = "scatterlm launch -n 2 doctor comm says more; NCCL_DEBUG=WARN lets NCCL explain itself";
  if (gpus().size() == 1) {
    finding.text = "one GPU: its ranks have nobody to exchange with";
    return finding;
  }
  Output output;
  RankProcess launcher(
      0, {"scatterlm", "launch", "-n", std::to_string(ranks), "doctor", "comm", "--mib", gpus().empty() ? "8" : "64"}, {});
  const auto start = std::chrono::steady_clock::now();
  const auto relay = [&] {
    launcher.relay(
        [&](std::FILE* to, std::string_view line) { (to == stdout ? output.lines : output.errors).emplace_back(line); });
  };
  while (!launcher.has_ended()) {
    relay();
    if (std::chrono::steady_clock::now() - start > std::chrono::duration<double>(timeout_s)) {
      return {finding.subject, Health::kFailed,
              fmt::format("{} ranks did not end within {:g} s{}", ranks, timeout_s,
                          output.errors.empty() ? "" : ": " + without_prefixes(output.errors.back())),
              advice};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  relay();
  if (launcher.status() != 0) {
    return {finding.subject, Health::kFailed,
            fmt::format("{} ranks: {}", ranks, output.errors.empty() ? "no message" : without_prefixes(output.errors.front())),
            advice};
  }
  const auto how = output.lines.empty() ? "" : output.lines.front().substr(output.lines.front().find("by ") + 3);
  finding.text = fmt::format("{} ranks {}, all collectives exact; reduce_scatter {}, all_gather {}", ranks,
                             how.empty() ? "" : "by " + how.substr(0, how.find(':')), output.figure("reduce_scatter"),
                             output.figure("all_gather"));
  return finding;
}

}  // namespace scatterlm::doctor
