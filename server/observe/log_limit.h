// LogLimit: how many lines one site of the log may write: kBurst at once, one every kRefill after.
// Further lines are counted and reported later, so that a message repeated a million times fills no
// disk.
//
// A site is a message, and messages are literals. Bounded: above kMaxSites the others share one.
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
  static constexpr std::chrono::seconds kQuiet{10};  // then unsaid lines have a line of their own
  static constexpr size_t kMaxSites = 256;

  // Returns none if the line must not be written. Otherwise returns how many lines of the site were
  // not written before it.
  std::optional<uint64_t> Ask(absl::string_view site, MonotonicTime now);

  struct Unsaid {
    std::string site;
    uint64_t lines = 0;
  };
  // Returns the sites with unsaid lines that were quiet for a while, and counts those lines as
  // said.
  std::vector<Unsaid> TakeUnsaid(MonotonicTime now);

 private:
  struct Site {
    uint64_t left = kBurst;
    MonotonicTime refilled_at{0};  // the time of `left`
    MonotonicTime last{0};
    uint64_t unsaid = 0;
  };

  Mutex mu_;
  absl::btree_map<std::string, Site> sites_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
