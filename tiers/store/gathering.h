// Gathering: waits for several things to end, and tells once how they ended.
//
// Thread-safe. The callbacks of those things share it, and nobody else owns it.
#pragma once

#include <absl/status/status.h>

#include <cstddef>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

class Gathering {
 public:
  // Calls `done` with the first error, or OK, once all `of` have ended, on the thread of the last.
  Gathering(size_t of, StatusCallback done) : left_(of), done_(std::move(done)) {}

  void End(const absl::Status& status) {
    absl::Status all;
    {
      MutexLock lock(&mu_);
      first_.Update(status);
      KVKEEP_CHECK(left_ > 0);
      if (--left_ > 0) return;
      all = first_;
    }
    std::move(done_)(std::move(all));
  }

 private:
  Mutex mu_;
  size_t left_ ABSL_GUARDED_BY(mu_);
  absl::Status first_ ABSL_GUARDED_BY(mu_);
  StatusCallback done_;  // called once
};

}  // namespace kvkeep::store_internal
