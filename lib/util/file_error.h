// What a call of the system that failed on a file means for the user.
#pragma once
#include <string>
#include <string_view>

#include "lib/util/error.h"

namespace scatterlm {

/// The storage failed, not the user: a full disk, a quota, an input/output error. The same may succeed later.
class StorageError : public Error {
 public:
  explicit StorageError(const std::string& message) : Error(message, kExitFailure) {}
};

/// This user or this program may not read a file, which may be good all the same: no permission, an unknown format version.
class AccessError : public Error {
 public:
  explicit AccessError(const std::string& message) : Error(message, kExitUser) {}
};

/// Whether errno `error` says that a path or its permissions must be changed: it is missing, forbidden, no folder, too long.
bool is_mistake_in_path(int error);

/// Throws "PATH: cannot WHAT: REASON" for errno `error`: AccessError for lack of permission, Error with
/// kExitUser for other mistakes (is_mistake_in_path), else StorageError. The first two end in `way_out`: "; give another
/// --out".
[[noreturn]] void fail_file(const std::string& path, std::string_view what, int error, std::string_view way_out = "");

}  // namespace scatterlm
