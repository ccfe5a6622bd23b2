// What ranks tell each other through the store, as text. What comes from there is read with care: the processes of another job,
// or a machine whose memory is damaged, write it too.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace scatterlm {

/// How far the rank of a machine that has called the fewest collectives has come.
struct MachineProgress {
  int64_t rank = 0;
  uint32_t called = 0;
  bool in_storage = false;  ///< it reads or writes files
  bool operator==(const MachineProgress&) const = default;
};

/// A machine's heartbeat: a number that changes, and its progress.
std::string write_heartbeat(uint64_t number, const MachineProgress& progress);
/// Nothing for a text that is no heartbeat.
std::optional<MachineProgress> read_heartbeat(const std::string& text);

/// The first lines in which two identities differ, fit for a message; a text that ends has empty ones.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b);

}  // namespace scatterlm
