#pragma once
#include <string>
#include <string_view>

namespace scatterlm {

/// The characters of a general category ("Lu"), group of categories ("L") or widespread script ("Han") that Unicode 15 and 16
/// have added, as the inside of a character class; empty for another property. PCRE2 10.42 knows Unicode 14, Hugging Face's
/// tokenizers and tiktoken know 16.
std::string newer_characters(std::string_view property);

}  // namespace scatterlm
