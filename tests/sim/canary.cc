// The bug of this run of kvkeep-sim-canary: a number of tiers/base/canary.h, in KVKEEP_CANARY. With
// 0 there is none, to see that nothing else fails in this program.

#include <absl/strings/numbers.h>

#include <cstdlib>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

int FromEnvironment() {
  const char* const number = std::getenv("KVKEEP_CANARY");
  int canary = 0;
  KVKEEP_CHECK(number != nullptr && absl::SimpleAtoi(number, &canary) && canary >= 0);
  return canary;
}

}  // namespace

const int planted_canary = FromEnvironment();

}  // namespace kvkeep
