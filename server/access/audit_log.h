// AuditLog: a line for every admin call: who, what, and the outcome.
//
//   msg=audit call=Clear who="pid=7 uid=0 gid=0" what="all namespaces" outcome=OK
//
// Lines are written at any log.level. Monitoring and scanners make many calls that only read
// (Status) or are refused: a caller's first one has a line, then one a minute has a line that says
// how many calls it stands for. Thread-safe.
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
    std::string repeated_by;  // key by which repeated calls share lines; empty: each has its own
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
