// Findings: collects what the threads of a check find, up to a limit, and counts the rest.
// Thread-safe.
#pragma once

#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/fsck/report.h"

namespace kvkeep::fsck_internal {

class Findings {
 public:
  explicit Findings(size_t max_listed) : max_listed_(max_listed) {}

  void Add(FsckFinding finding);
  // Counts one more finding without listing it.
  void OnlyCount(bool notice);

  uint64_t problems() const;
  // Puts the findings into a report: problems first, each kind in the order of places.
  template <typename Report>
  void MoveTo(Report* report) {
    Sort();
    MutexLock lock(&mu_);
    report->findings = std::move(listed_);
    report->problems = problems_;
    report->notices = notices_;
  }

 private:
  void Sort();

  const size_t max_listed_;
  mutable Mutex mu_;
  std::vector<FsckFinding> listed_ ABSL_GUARDED_BY(mu_);
  uint64_t problems_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t notices_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kvkeep::fsck_internal
