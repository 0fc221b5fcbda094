// Returns whether this is a build with sanitizers. It is several times slower, so times are
// meaningless, and tests with many repetitions make fewer.
#pragma once

namespace kvkeep {

#if defined(KVKEEP_SANITIZED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace kvkeep
