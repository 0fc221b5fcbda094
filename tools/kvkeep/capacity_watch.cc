#include "tools/kvkeep/capacity_watch.h"

#include <absl/strings/str_cat.h>

namespace kvkeep::tools {
namespace {

constexpr std::chrono::milliseconds kPollEvery{100};

// Returns "" if `used` is within `capacity`; a tier that is switched off has neither.
std::string Excess(absl::string_view what, uint64_t used, uint64_t capacity) {
  if (used <= capacity) return "";
  return absl::StrCat(what, " holds ", used, " bytes of ", capacity);
}

}  // namespace

CapacityWatch::CapacityWatch(const std::string& admin_endpoint, client::Deadline timeout)
    : admin_(admin_endpoint, timeout), thread_([this] { Run(); }) {}

CapacityWatch::~CapacityWatch() {
  if (thread_.joinable()) Stop();
}

CapacityWatch::Findings CapacityWatch::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stop_now_.NotifyAll();
  }
  thread_.join();
  return findings_;
}

void CapacityWatch::Run() {
  while (true) {
    bool last = false;
    {
      MutexLock lock(&mu_);
      last = stopping_;
    }
    Poll();
    if (last) return;
    MutexLock lock(&mu_);
    if (!stopping_) stop_now_.WaitFor(&mu_, kPollEvery);
  }
}

void CapacityWatch::Poll() {
  auto status = admin_.Status();
  if (!status.ok()) return;
  ++findings_.polls;
  findings_.resident_chunks_g2 = status->g2().chunks();
  findings_.resident_chunks_g3 = status->g3().chunks();
  std::vector<std::string> found = {
      Excess("g2", status->g2().used_bytes(), status->g2().capacity_bytes()),
      Excess("g3", status->g3().used_bytes(), status->g3().capacity_bytes())};
  for (const auto& device : status->devices()) {
    found.push_back(Excess(absl::StrCat("directory of ", device.path()), device.directory_bytes(),
                           device.built_bytes()));
  }
  for (std::string& violation : found) {
    if (violation.empty()) continue;
    if (findings_.violations++ == 0) findings_.first_violation = std::move(violation);
  }
}

}  // namespace kvkeep::tools
