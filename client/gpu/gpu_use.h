// GpuUse: says whether the daemon may still use memory of calls that ended without its answer.
//
// Puts and gets take it in their options; several calls may share one. The runs of a call that
// ended by its deadline, or because its connection broke, may still be read or written: in_use() is
// true until the daemon has answered, or its process has ended. It says nothing about calls that
// have not ended. Thread-safe.
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
  // Returns whether the memory is in use and an answer may still come, as the connection exists.
  bool is_awaited();

  // For the transport: a message goes out; it was answered, or (`left_to`) never will be.
  void Begin();
  void End(std::shared_ptr<const DaemonProcess> left_to);

 private:
  Mutex mu_;
  size_t unanswered_ ABSL_GUARDED_BY(mu_) = 0;
  const std::unique_ptr<DaemonProcesses> left_to_ ABSL_PT_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client
