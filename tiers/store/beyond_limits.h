// Limits of a lookup's search beyond the node (BeyondOptions).
#pragma once

#include <chrono>

namespace kvkeep {

inline constexpr std::chrono::seconds kLongestBeyondWait{10};
// The largest value of BeyondOptions::recompute_per_key. It says that the caller cannot compute the
// key, so a single missing chunk is enough to ask for it.
inline constexpr std::chrono::seconds kNotComputable{60};
// A caller who does not say what computing costs waits at least so long for the next piece of what
// was found: at least 8 chunks, so mostly a thousand tokens or more. A packet that TCP sends again,
// or a machine that is busy, takes a fifth of a second.
inline constexpr std::chrono::milliseconds kLeastWaitForPieces{500};

}  // namespace kvkeep
