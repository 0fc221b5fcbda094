#include "tiers/io/engine_device.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/base/status_macros.h"
#include "tiers/io/operation_check.h"

namespace kvkeep {
namespace {

// A callback must not wait for operations: it would wait for the thread that completes them.
thread_local bool in_callback = false;

// Returns the nanoseconds since `time`, for a histogram.
uint64_t Since(MonotonicTime time) {
  const MonotonicTime now = RealClock()->Now();
  return now > time ? static_cast<uint64_t>((now - time).count()) : 0;
}

void NoteTime(DeviceTimes* times, const IoOperation& operation) {
  if (times == nullptr) return;
  const bool read = operation.kind == IoOperation::Kind::kRead;
  (read ? times->read : times->write).Record(Since(operation.submitted_at));
}

class EngineDevice final : public Device {
 public:
  EngineDevice(std::shared_ptr<OpenDevice> state, OperationSink* sink, IoCounters* counters)
      : state_(std::move(state)), sink_(sink), counters_(counters) {}

  ~EngineDevice() override {
    KVKEEP_CHECK(!in_callback || state_->outstanding.count() == 0);
    state_->outstanding.WaitNone();
  }

  void Submit(IoOperation operation) override {
    absl::Status check =
        CheckOperation(operation, state_->file.size_bytes(), state_->file.read_only());
    if (!check.ok()) {
      check = absl::Status(check.code(), absl::StrCat(state_->file.path(), ": ", check.message()));
    }
    if (state_->times != nullptr) operation.submitted_at = RealClock()->Now();
    state_->outstanding.Add();
    ++counters_->queued;
    sink_->Accept({state_, std::move(operation), std::move(check)});
  }

  absl::Status Sync() override {
    KVKEEP_CHECK(!in_callback);
    if (state_->file.read_only()) return absl::OkStatus();
    const MonotonicTime began = RealClock()->Now();
    absl::Status status = state_->file.Sync();
    if (state_->times != nullptr) state_->times->sync.Record(Since(began));
    return status;
  }

  uint64_t size_bytes() const override { return state_->file.size_bytes(); }
  bool direct() const override { return state_->file.direct(); }

  std::shared_ptr<DeviceQueue> QueueOf(const OperationSink* sink) const {
    KVKEEP_CHECK(sink == sink_);
    return state_->queue;
  }

 private:
  const std::shared_ptr<OpenDevice> state_;
  OperationSink* const sink_;
  IoCounters* const counters_;
};

}  // namespace

std::shared_ptr<DeviceQueue> SubmittedOperation::Queue() && {
  KVKEEP_CHECK(check.ok());
  std::shared_ptr<DeviceQueue> queue = device->queue;
  const absl::string_view name = device->file.path();
  queue->Push(std::move(operation), name, std::move(device));
  return queue;
}

CompletedOperation CompletedOperation::Of(IoRequest& request) {
  KVKEEP_CHECK(request.fragments_out == 0);
  NoteTime(request.file->times, request.operation);
  return {std::move(request.file), std::move(request.operation.done), std::move(request.status)};
}

CompletedOperation CompletedOperation::Refused(SubmittedOperation submitted, absl::Status status,
                                               IoCounters* counters) {
  KVKEEP_CHECK(!status.ok());
  --counters->queued;
  ++counters->errors;
  NoteTime(submitted.device->times, submitted.operation);
  return {std::move(submitted.device), std::move(submitted.operation.done), std::move(status)};
}

void CompletedOperation::Tell() && {
  KVKEEP_CHECK(!in_callback);
  in_callback = true;
  std::move(done)(std::move(status));
  done = nullptr;  // before the device is let go: what it captured may belong to the device's owner
  in_callback = false;
  device->outstanding.Done();
}

void FallbackNotes::Add(std::string note) {
  MutexLock lock(&mu_);
  if (std::find(notes_.begin(), notes_.end(), note) != notes_.end()) return;
  if (notes_.size() < kMaxNotes) {
    notes_.push_back(std::move(note));
  } else {
    ++more_;
  }
}

std::string FallbackNotes::ToString() const {
  MutexLock lock(&mu_);
  std::string text;
  for (const std::string& note : notes_) absl::StrAppend(&text, "; ", note);
  if (more_ > 0) absl::StrAppend(&text, "; and ", more_, " more");
  return text;
}

absl::StatusOr<std::unique_ptr<Device>> OpenEngineDevice(const DeviceOptions& options,
                                                         OperationSink* sink, IoCounters* counters,
                                                         FallbackNotes* notes) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  KVKEEP_ASSIGN_OR_RETURN(DeviceFile file, DeviceFile::Open(options));
  if (!file.direct()) {
    ++counters->buffered_opens;
    notes->Add(absl::StrCat(file.path(), " is buffered: ", file.why_buffered()));
  }
  std::shared_ptr<DeviceQueue> queue;
  if (options.beside != nullptr) {
    const auto* const other = dynamic_cast<const EngineDevice*>(options.beside);
    KVKEEP_CHECK(other != nullptr);
    queue = other->QueueOf(sink);
  } else {
    queue = std::make_shared<DeviceQueue>(
        DeviceQueue::Limits{options.depth, options.max_io_bytes, options.max_bytes_out}, counters);
  }
  auto state = std::make_shared<OpenDevice>(std::move(file), options.times, std::move(queue));
  return std::make_unique<EngineDevice>(std::move(state), sink, counters);
}

}  // namespace kvkeep
