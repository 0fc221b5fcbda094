// What a lookup may ask at most of what lies beyond the node (BeyondOptions).
#pragma once

#include <chrono>

namespace kvkeep {

inline constexpr std::chrono::seconds kLongestBeyondWait{10};
// As BeyondOptions::recompute_per_key, and the most of it: the caller cannot compute the key, so
// that a single missing chunk is enough to ask for it.
inline constexpr std::chrono::seconds kNotComputable{60};

}  // namespace kvkeep
