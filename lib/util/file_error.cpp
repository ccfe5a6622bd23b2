#include "lib/util/file_error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lib/util/similar_path.h"

namespace scatterlm {

bool is_mistake_in_path(int error) {
  constexpr int kMistakes[] = {ENOENT, EACCES, EPERM, ENOTDIR, EISDIR, EEXIST, ELOOP, ENAMETOOLONG};
  return std::ranges::find(kMistakes, error) != std::end(kMistakes);
}

void fail_file(const std::string& path, std::string_view what, int error, std::string_view way_out) {
  const auto message = fmt::format("{}: cannot {}: {}", path, what, std::strerror(error));
  if (!is_mistake_in_path(error)) throw StorageError(message);
  if (error == EACCES || error == EPERM) throw AccessError(fmt::format("{}{}", message, way_out));
  const bool reads = what == "open" || what == "read";
  fail_user("{}{}{}", message, error == ENOENT && reads ? explain_missing_path(path) : "", way_out);
}

}  // namespace scatterlm
