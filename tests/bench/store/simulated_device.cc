#include "tests/bench/store/simulated_device.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"

namespace kvkeep {
namespace {

// Takes everything and knows nothing: no store is started on it again.
class ForgetfulIndex final : public ChunkIndex {
 public:
  absl::Status Commit(const IndexBatch&) override { return absl::OkStatus(); }
  absl::Status Sync(const StableMark&) override { return absl::OkStatus(); }
  absl::StatusOr<StableMark> ReadStableMark() override { return StableMark{}; }
  absl::StatusOr<ScanResult> Scan(absl::FunctionRef<bool(const IndexRecord&)>) override {
    return ScanResult{};
  }
  absl::Status SaveRecency(std::span<const RecencyDelta>) override { return absl::OkStatus(); }
  absl::Status ScanRecency(absl::FunctionRef<bool(const RecencyDelta&)>) override {
    return absl::OkStatus();
  }
  absl::Status PutMeta(absl::string_view, absl::string_view) override { return absl::OkStatus(); }
  absl::Status EraseMeta(absl::string_view) override { return absl::OkStatus(); }
  absl::StatusOr<std::optional<std::string>> GetMeta(absl::string_view) override {
    return std::optional<std::string>();
  }
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ListMeta(
      absl::string_view) override {
    return std::vector<std::pair<std::string, std::string>>();
  }
  uint64_t disk_bytes() const override { return 0; }
};

}  // namespace

MonotonicTime SimulatedBus::DoneAt(MonotonicTime now, uint64_t bytes) {
  const std::chrono::duration<double> moving(static_cast<double>(bytes) / drive_.bytes_per_second);
  free_at_ = std::max(free_at_, now) + std::chrono::duration_cast<std::chrono::nanoseconds>(moving);
  return free_at_ + drive_.latency;
}

SimulatedDevice::SimulatedDevice(const SimulatedDrive& drive, uint8_t name)
    : index_(std::make_unique<ForgetfulIndex>()), bytes_(drive.bytes), bus_(drive) {
  KVKEEP_CHECK(drive.bytes % kBlockBytes == 0 && drive.bytes_per_second > 0);
  uuid_.bytes[0] = name;
  worker_ = std::thread([this] { Work(); });
}

SimulatedDevice::~SimulatedDevice() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    work_or_stop_.NotifyAll();
  }
  worker_.join();
}

void SimulatedDevice::Submit(IoOperation operation) {
  const uint64_t offset = operation.offset.value();
  KVKEEP_CHECK(offset + operation.bytes <= bytes_.size() && operation.done != nullptr);
  MutexLock lock(&mu_);
  KVKEEP_CHECK(!stopping_);
  const MonotonicTime done_at = bus_.DoneAt(RealClock()->Now(), operation.bytes);
  in_flight_.push_back({std::move(operation), done_at});
  work_or_stop_.NotifyAll();
}

void SimulatedDevice::Work() {
  while (true) {
    std::optional<IoOperation> over;
    {
      MutexLock lock(&mu_);
      while (in_flight_.empty() && !stopping_) work_or_stop_.Wait(&mu_);
      if (in_flight_.empty()) return;
      const auto left = in_flight_.front().done_at - RealClock()->Now();
      if (left.count() > 0) {
        work_or_stop_.WaitFor(&mu_, left);
        continue;
      }
      over = std::move(in_flight_.front().operation);
      in_flight_.pop_front();
    }
    std::byte* const at = bytes_.data() + over->offset.value();
    const bool read = over->kind == IoOperation::Kind::kRead;
    std::memcpy(read ? over->data : at, read ? at : over->data, over->bytes);
    std::move(over->done)(absl::OkStatus());
  }
}

}  // namespace kvkeep
