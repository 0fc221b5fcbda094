#include "server/supervision/start_reporter.h"

#include <absl/strings/str_cat.h>
#include <pthread.h>

namespace kvkeep {

StartReporter::StartReporter(const ServiceManager* manager, const StartProgress* progress,
                             std::chrono::milliseconds period)
    : manager_(manager), progress_(progress), period_(period) {
  Report();
  thread_ = std::thread([this] { Run(); });
}

StartReporter::~StartReporter() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  thread_.join();
}

void StartReporter::Run() {
  pthread_setname_np(pthread_self(), "kvkeep-start");
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!stopping_) stop_.WaitFor(&mu_, period_);
      if (stopping_) return;
    }
    Report();
  }
}

void StartReporter::Report() {
  const char* const step = progress_->step.load();
  const uint64_t records = progress_->recovered_records.load(std::memory_order_relaxed);
  if (step == last_step_ && records == last_records_) return;  // it does not get on
  last_step_ = step;
  last_records_ = records;
  manager_->TakesLonger(
      records == 0 ? std::string(step) : absl::StrCat(step, ": ", records, " chunks found so far"),
      kMoreTime);
}

}  // namespace kvkeep
