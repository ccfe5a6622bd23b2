// Which program this is: what evidence files and `--version` say.
#pragma once
#include <string>
#include <vector>

namespace scatterlm {

/// The sources that a number depends on.
enum class SourceSet {
  kTraining,  ///< kernels, lib, app: steps and training
  kKernels,   ///< kernels, lib/ops: benches of kernels
};

/// The state of a source set when this binary was built.
struct SourceHash {
  std::vector<std::string> sources;  ///< paths from the repository root
  /// First 16 hex digits of sha256 over the output of `git ls-files -s -- SOURCES`; "unknown" when built outside a checkout.
  std::string hash;
  bool dirty = true;  ///< the files differed from git's index, or the hash is unknown
};

SourceHash source_hash(SourceSet set);

/// What `scatterlm --version` prints: a line each for the program, its libraries, the machine and the sources,
/// without the end of the last line.
std::string version_text();

}  // namespace scatterlm
