// Two rows of the table in shared memory, of which any byte may be damaged: what a watchdog reads and prints of them.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "lib/distributed/rank_status.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  constexpr int64_t kRanks = 2;
  static std::byte* const memory =
      static_cast<std::byte*>(std::aligned_alloc(64, (RankStatusTable::bytes(kRanks) + 63) / 64 * 64));
  auto& table = *reinterpret_cast<RankStatusTable*>(memory);
  const auto rows = table.rows(kRanks);
  // The beginning of each row, which holds its fields and its first calls; the rest is zero as in a new table.
  constexpr size_t kMost = 2048;
  const size_t half = std::min(size / 2, kMost);
  for (size_t row = 0; row < rows.size(); ++row) {
    std::memset(static_cast<void*>(&rows[row]), 0, kMost);
    if (half > 0) std::memcpy(static_cast<void*>(&rows[row]), data + row * half, half);
    auto& finished = *reinterpret_cast<uint8_t*>(&rows[row].finished);
    finished = finished != 0;  // to C++ any other value is undefined
  }
  const auto text = state_of_ranks(rows);
  if (text.empty() || text.size() > 1000) std::abort();
  for (RankStatus& row : rows) {
    for (const uint32_t number : {uint32_t{1}, row.called.load(), row.called - 1, row.done.load()}) {
      const auto call = row.find(number);
      if (!call) continue;
      if (describe(call->call).size() > 200) std::abort();
    }
    if (row.age_s() < 0 || (row.finished && row.is_stopped())) std::abort();
  }
  return 0;
}
