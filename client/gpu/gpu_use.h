// GpuUse: whether the daemon may still use what calls name that have ended without its answer.
//
// Given to puts and gets with their options: one, or one for several. The runs of a call that ended
// by its deadline, or as its connection broke, may still be read or written: in_use() until the
// daemon has answered, or its process has ended. Before a call has ended it says nothing.
// Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

#include "tiers/base/mutex.h"

namespace kvkeep::client {

class DaemonProcess;
class DaemonProcesses;

class GpuUse {
 public:
  GpuUse();
  ~GpuUse();
  bool in_use();
  // Whether the memory is in use and an answer may still come, as the connection is there.
  bool is_awaited();

  // For the transport. A message goes out; it was answered, or (`left_to`) never will be.
  void Begin();
  void End(std::shared_ptr<const DaemonProcess> left_to);

 private:
  Mutex mu_;
  size_t unanswered_ ABSL_GUARDED_BY(mu_) = 0;
  const std::unique_ptr<DaemonProcesses> left_to_ ABSL_PT_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client
