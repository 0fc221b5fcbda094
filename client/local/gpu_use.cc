#include "client/gpu/gpu_use.h"

#include <utility>

#include "client/local/daemon_process.h"
#include "tiers/base/check.h"

namespace kvkeep::client {

GpuUse::GpuUse() : left_to_(std::make_unique<DaemonProcesses>()) {}
GpuUse::~GpuUse() = default;

bool GpuUse::in_use() {
  MutexLock lock(&mu_);
  return unanswered_ > 0 || !left_to_->empty();
}

bool GpuUse::is_awaited() {
  MutexLock lock(&mu_);
  return unanswered_ > 0;
}

void GpuUse::Begin() {
  MutexLock lock(&mu_);
  ++unanswered_;
}

void GpuUse::End(std::shared_ptr<const DaemonProcess> left_to) {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(unanswered_ > 0);
  --unanswered_;
  if (left_to != nullptr) left_to_->Add(std::move(left_to));
}

}  // namespace kvkeep::client
