// StartReporter: while a daemon starts, tells the service manager how far it is, and asks for more
// time as long as it makes progress. A start that hangs gets no more time: the manager's own limit
// ends it.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "server/supervision/service_manager.h"
#include "server/supervision/start_progress.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class StartReporter {
 public:
  // Reports at once, then once a `period` from a thread of its own, until destroyed. Borrows both.
  StartReporter(const ServiceManager* manager, const StartProgress* progress,
                std::chrono::milliseconds period = std::chrono::milliseconds(1000));
  ~StartReporter();
  StartReporter(const StartReporter&) = delete;
  StartReporter& operator=(const StartReporter&) = delete;

  // Time that the manager allows after each report.
  static constexpr std::chrono::seconds kMoreTime{60};

 private:
  void Run();
  void Report();

  const ServiceManager* const manager_;
  const StartProgress* const progress_;
  const std::chrono::milliseconds period_;
  std::string last_told_;
  Mutex mu_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace kvkeep
