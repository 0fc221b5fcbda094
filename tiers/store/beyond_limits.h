// Limits of a lookup's search beyond the node (BeyondOptions).
#pragma once

#include <chrono>

namespace kvkeep {

inline constexpr std::chrono::seconds kLongestBeyondWait{10};
// The largest value of BeyondOptions::recompute_per_key. It says that the caller cannot compute the
// key, so a single missing chunk is enough to ask for it.
inline constexpr std::chrono::seconds kNotComputable{60};

}  // namespace kvkeep
