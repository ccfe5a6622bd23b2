// Files that are part of the program.
#pragma once
#include <string_view>

namespace scatterlm::page {

std::string_view html();
std::string_view css();
std::string_view js();
/// Empty where there was none at configuration.
std::string_view plotly();

}  // namespace scatterlm::page
