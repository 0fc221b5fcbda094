// What hits are worth: their number ("reuse"), or the seconds of prefill they save ("seconds").
//
// The attention of a chunk reads all that is before it (prefill_cost.h). So where the first chunk
// of a chain costs 1, its n chunks cost 1 + n / c on average. With chunks of 512 tokens, c is 110
// to 210 for dense models of 8 to 70 billion parameters, and 55 to 140 for mixtures of experts.
// Smaller chunks have a greater c, which this does not know; and the store tells chains in pieces
// of 512, each worth what a chain of its length is.
// kAsDear is above them: long chains are few, so what is known of when they come back is the least
// sure, and each takes the place of many others.
#pragma once

#include <cstdint>

namespace kvkeep {

enum class Objective : uint8_t { kHits, kSeconds };

inline constexpr double kAsDear = 320;

// Returns the worth of each chunk of a chain of so many, on average.
inline double WorthOfEach(Objective objective, uint32_t chunks) {
  return objective == Objective::kSeconds ? 1 + chunks / kAsDear : 1;
}

}  // namespace kvkeep
