// FromEnvironment: an amount or a seed that a run by hand sets for a test.
#pragma once

#include <absl/strings/numbers.h>

#include <cstdint>
#include <cstdlib>

#include "tiers/base/check.h"

namespace kvkeep {

// Returns an unsigned number from the environment; `otherwise` if it is not set. Fails on text that
// is no number.
inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return otherwise;
  uint64_t value = 0;
  KVKEEP_CHECK(absl::SimpleAtoi(text, &value));
  return value;
}

}  // namespace kvkeep
