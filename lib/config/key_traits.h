// What a key says about its value, in its visit line.
#pragma once
#include "lib/config/enums.h"

namespace scatterlm {

/// What happens when a run goes on from a checkpoint that was trained with another value of a key.
enum class OnResume {
  kAsGroup,  ///< what the group says that the key is in
  kAccept,   ///< nothing: the key changes no result
  kWarn,     ///< a warning: the key changes the training from here on
  kRefuse,   ///< an error: the checkpoint does not fit the model, or steps are not counted in the same batch
};

/// What a key says about its value: `Range{0, 1}`, `OnResume::kWarn`, or both as `{Range{0, 1}, OnResume::kWarn}`.
struct KeyTraits {
  Range range;
  OnResume on_resume = OnResume::kAsGroup;

  KeyTraits() = default;
  KeyTraits(const Range& range, OnResume on_resume = OnResume::kAsGroup) : range(range), on_resume(on_resume) {}
  KeyTraits(OnResume on_resume) : on_resume(on_resume) {}
};

}  // namespace scatterlm
