// Messages to the user on stderr; results and step lines go to stdout elsewhere. Control characters are escaped.
#pragma once
#include <cstdint>
#include <string_view>

namespace scatterlm {

/// For several processes that do the same: each message names its rank, and only rank 0 prints more than errors.
void log_as_rank(int64_t rank);

void log_info(std::string_view text);
void log_warning(std::string_view text);
void log_error(std::string_view text);

}  // namespace scatterlm
