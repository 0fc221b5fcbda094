// Code shared by both engines for a device's file: its state, the Device handed to the caller, and
// the completion of operations.
//
// Ownership: the Device and every operation on its way hold the OpenDevice; the descriptor is
// closed with the last of them. Files that are one device share its queue, which belongs to the
// engine; that guards it (ring thread or mutex).
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/io/device.h"
#include "tiers/io/device_file.h"
#include "tiers/io/device_queue.h"
#include "tiers/io/device_times.h"
#include "tiers/io/io_counters.h"
#include "tiers/io/io_engine.h"
#include "tiers/io/outstanding.h"

namespace kvkeep {

struct OpenDevice {
  OpenDevice(DeviceFile opened, DeviceTimes* noted, std::shared_ptr<DeviceQueue> shared)
      : file(std::move(opened)), times(noted), queue(std::move(shared)) {}

  const DeviceFile file;
  DeviceTimes* const times;                  // or null
  const std::shared_ptr<DeviceQueue> queue;  // what it points to is guarded by the engine
  Outstanding outstanding;                   // submitted, callback not yet returned
};

// An operation on its way from Submit to the engine.
struct SubmittedOperation {
  std::shared_ptr<OpenDevice> device;
  IoOperation operation;
  absl::Status check;  // why it must not be issued, if it must not

  // Pushes it onto its device's queue, and returns the queue. REQUIRES: the caller guards the
  // queue.
  std::shared_ptr<DeviceQueue> Queue() &&;
};

// A finished operation whose callback has yet to run.
struct CompletedOperation {
  std::shared_ptr<OpenDevice> device;
  IoOperation::Done done;
  absl::Status status;

  // Makes one of a request that its queue gave back.
  static CompletedOperation Of(IoRequest& request);
  // Makes one of an operation that never reached a queue. It counts as an error.
  static CompletedOperation Refused(SubmittedOperation submitted, absl::Status status,
                                    IoCounters* counters);
  // Runs the callback, destroys it, then lets the device go. REQUIRES: no lock held.
  void Tell() &&;
};

// Where submitted operations go: the engine behind its devices.
class OperationSink {
 public:
  // Thread-safe. REQUIRES: the engine is not destroyed.
  virtual void Accept(SubmittedOperation submitted) = 0;

 protected:
  ~OperationSink() = default;
};

// Notes of fallbacks and their reasons, for describe(): bounded, each once. Thread-safe.
class FallbackNotes {
 public:
  void Add(std::string note);
  // "; note; note", or nothing.
  std::string ToString() const;

 private:
  static constexpr size_t kMaxNotes = 8;

  mutable Mutex mu_;
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mu_);
  uint64_t more_ ABSL_GUARDED_BY(mu_) = 0;
};

// Opens `options.path` as a Device whose operations go to `sink`, like those of options.beside.
// `sink` and `counters` outlive all of its operations. Counts and notes a buffered open.
absl::StatusOr<std::unique_ptr<Device>> OpenEngineDevice(const DeviceOptions& options,
                                                         OperationSink* sink, IoCounters* counters,
                                                         FallbackNotes* notes);

}  // namespace kvkeep
