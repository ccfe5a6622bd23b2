#pragma once

#include <cstdint>

extern "C" {

/// What the file FAULT_CONTROL holds, for all processes that map it.
struct FaultControl {
  int64_t read_only;       ///< not 0: all calls that change something below the folder fail with EROFS
  int64_t fsync_us;        ///< fsync of files there takes so long
  int64_t clock_offset_s;  ///< added to the time of day
};

/// What happens at a call, and for the kinds without "once" at all calls after it.
enum FaultKind {
  kFaultKill,      ///< SIGKILL before the call
  kFaultIo,        ///< EIO, once
  kFaultQuota,     ///< EDQUOT, once
  kFaultFull,      ///< ENOSPC
  kFaultReadOnly,  ///< EROFS
  kFaultShort,     ///< write() writes half, which is no error
  kFaultKinds
};

/// The n-th call (from 1) that changes something below `folder`, or synchronises or closes a file there, fails; 0: none does.
/// Files there are not synchronised with the disk.
void inject_fault(const char* folder, FaultKind kind, long call);

/// Calls counted since.
long faulty_calls();

/// From now on two folders cannot swap their names, as on network file systems.
void refuse_swaps();

}  // extern "C"
