#pragma once
#include <string>
#include <string_view>

namespace scatterlm {

/// Appends Unicode's Normalization Form C of `text`, valid UTF-8, to `out`. A character below U+0080 combines with none before
/// it, so a text may be cut in front of one.
void append_nfc(std::string_view text, std::string& out);

/// Whether each character of `text` is its own normal form and combines with none; quick, and false for some texts in NFC.
bool is_surely_nfc(std::string_view text);

}  // namespace scatterlm
