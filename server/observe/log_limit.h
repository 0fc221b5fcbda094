// LogLimit: how many lines one site of the log may write: kBurst at once, one every kRefill after.
// The rest is counted and told later, so that whoever makes us say the same thing a million times
// fills no disk.
//
// A site is a message: those are literals. Bounded: above kMaxSites the others share one.
// Thread-safe.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/strings/string_view.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class LogLimit {
 public:
  static constexpr uint64_t kBurst = 64;  // as many devices as there may be
  static constexpr std::chrono::seconds kRefill{1};
  static constexpr std::chrono::seconds kQuiet{10};  // then what is unsaid is said by itself
  static constexpr size_t kMaxSites = 256;

  // Nothing: do not write it. Else how many lines of the site were not written before this one.
  std::optional<uint64_t> Ask(absl::string_view site, MonotonicTime now);

  struct Unsaid {
    std::string site;
    uint64_t lines = 0;
  };
  // Sites with unsaid lines from which nothing came for a while; counted as said.
  std::vector<Unsaid> TakeUnsaid(MonotonicTime now);

 private:
  struct Site {
    uint64_t left = kBurst;
    MonotonicTime refilled_at{0};  // as of when `left` is
    MonotonicTime last{0};
    uint64_t unsaid = 0;
  };

  Mutex mu_;
  absl::btree_map<std::string, Site> sites_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
