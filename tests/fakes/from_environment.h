// FromEnvironment: how much of something, or from which seed, a run by hand asks a test for.
#pragma once

#include <absl/strings/numbers.h>

#include <cstdint>
#include <cstdlib>

#include "tiers/base/check.h"

namespace kvkeep {

// An unsigned number from the environment; `otherwise` when it is not set. Fails on text that is no
// number.
inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return otherwise;
  uint64_t value = 0;
  KVKEEP_CHECK(absl::SimpleAtoi(text, &value));
  return value;
}

}  // namespace kvkeep
