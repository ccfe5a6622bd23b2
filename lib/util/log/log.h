// Messages to the user on stderr; results and step lines go to stdout elsewhere.
#pragma once
#include <string_view>

namespace scatterlm {

void log_info(std::string_view text);
void log_warning(std::string_view text);
void log_error(std::string_view text);

}  // namespace scatterlm
