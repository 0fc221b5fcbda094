// CapacityWatch: polls the daemon's status, and counts every time that a tier or a device holds
// more than its capacity. A daemon that is away is no violation.
#pragma once

#include <string>
#include <thread>

#include "client/admin.h"
#include "tiers/base/mutex.h"

namespace kvkeep::tools {

class CapacityWatch {
 public:
  struct Findings {
    uint64_t polls = 0;  // answered ones
    uint64_t violations = 0;
    std::string first_violation;
    uint64_t resident_chunks_g2 = 0;  // by the last answer
    uint64_t resident_chunks_g3 = 0;
  };

  CapacityWatch(const std::string& admin_endpoint, client::Deadline timeout);
  ~CapacityWatch();
  // Polls once more and ends the watch.
  Findings Stop();

 private:
  void Run();
  void Poll();

  client::AdminClient admin_;
  Mutex mu_;
  CondVar stop_now_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  Findings findings_;  // used by the thread, by others once it has joined
  std::thread thread_;
};

}  // namespace kvkeep::tools
