// What a path that is not there was probably meant to be.
#pragma once
#include <string>

namespace scatterlm {

/// ", did you mean 'data/headers/train.bin'?" where each part of `path` that is not there has a similar name in its folder, or
/// one that only lacks the extension; otherwise nothing. Goes after "PATH: cannot open: REASON".
std::string explain_missing_path(const std::string& path);

}  // namespace scatterlm
