// AuditLog: a line for every admin call: who, what, and the outcome.
//
//   msg=audit call=Clear who="pid=7 uid=0 gid=0" what="all namespaces" outcome=OK
//
// Written whatever log.level is. Calls that only look (Status), and refused calls, come in great
// numbers from monitoring and from scanners: a caller's first one has a line, then one a minute has
// a line that says how many it stands for. Thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

#include <string>

#include "server/observe/log.h"
#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class AuditLog {
 public:
  // Borrowed.
  AuditLog(const Log* log, const Clock* clock) : log_(log), clock_(clock) {}

  struct Entry {
    absl::string_view call;  // "Clear"
    std::string who;
    std::string what;
    std::string outcome;      // "OK", or the status
    std::string repeated_by;  // not empty: one of many; what its like have in common
  };
  void Write(const Entry& entry);

 private:
  struct Seen {
    MonotonicTime next_line;
    uint64_t unsaid = 0;
  };

  const Log* const log_;
  const Clock* const clock_;
  Mutex mu_;
  absl::flat_hash_map<std::string, Seen> seen_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
