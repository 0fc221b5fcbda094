#include "server/supervision/start_reporter.h"

#include <absl/strings/str_cat.h>
#include <pthread.h>

#include <utility>

#include "tiers/base/units.h"

namespace kvkeep {
namespace {

// Returns a text of the start's progress, which differs whenever there was some.
std::string Describe(const StartProgress& progress) {
  std::string told = progress.step.load();
  const char* before = ": ";
  const auto add = [&](uint64_t count, absl::string_view what) {
    if (count > 0) absl::StrAppend(&told, std::exchange(before, ", "), count, what);
  };
  add(progress.memory_bytes.load() / kMiB, " MiB taken");
  add(progress.recovered_images.load(), " chunks found in G2");
  add(progress.recovered_records.load(), " on devices");
  return told;
}

}  // namespace

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
  std::string told = Describe(*progress_);
  if (told == last_told_) return;  // no progress
  last_told_ = std::move(told);
  manager_->TakesLonger(last_told_, kMoreTime);
}

}  // namespace kvkeep
