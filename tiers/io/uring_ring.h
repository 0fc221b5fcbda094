// UringRing: one io_uring and the eventfd that wakes its thread. Hides liburing: the kernel's flags
// and features, a full submission queue, interrupted and refused enters.
//
// Created, used and destroyed on one thread (the kernel insists); only Wake is for others.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvkeep {

class UringRing {
 public:
  struct Io {
    uint64_t tag = 0;  // comes back with the completion; not ~0
    bool read = true;
    int fd = -1;
    uint64_t offset = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;
    std::optional<uint32_t> buffer_slot;  // the registered buffer that holds all of `data`
  };
  struct Completion {
    uint64_t tag = 0;
    int64_t result = 0;  // bytes moved, or a negated errno
  };
  enum class Wait {
    kNo,
    kBriefly,     // at most a millisecond
    kUntilEvent,  // a completion, or Wake
  };

  // Unavailable or ResourceExhausted, with what to do, when this kernel or container has no usable
  // io_uring. `entries`: of the submission queue, a power of two.
  static absl::StatusOr<std::unique_ptr<UringRing>> Create(uint32_t entries, uint32_t buffer_slots);
  // A ring that keeps buffers for others (TakeBuffer) and does no I/O. Any thread may register in
  // it.
  static absl::StatusOr<std::unique_ptr<UringRing>> CreateForBuffers(uint32_t buffer_slots);
  ~UringRing();

  int fd() const { return ring_.ring_fd; }
  // I/O prepared and not completed must never exceed this: then no completion can be lost.
  uint32_t max_in_flight() const { return max_in_flight_; }
  // "SINGLE_ISSUER|DEFER_TASKRUN", for describe().
  const std::string& features() const { return features_; }

  // Puts an I/O on the submission queue; Enter hands it to the kernel.
  void Prepare(const Io& io);
  // Submits the prepared I/O, waits as told, appends the completions.
  void Enter(Wait wait, std::vector<Completion>* completions);
  // Pins `memory` as buffer `slot`.
  absl::Status RegisterBuffer(uint32_t slot, std::span<std::byte> memory);
  // Takes over a buffer that another ring of this process has: pinned once for both. Unavailable:
  // this kernel cannot (Linux before 6.13).
  absl::Status TakeBuffer(uint32_t slot, int from_ring_fd, uint32_t from_slot);

  // Ends an Enter that waits now, or the next one. Any thread, as long as the ring lives.
  void Wake();

 private:
  UringRing() = default;

  absl::Status SetUp(uint32_t entries);
  absl::Status Probe();
  int EnterOnce(Wait wait);
  void Collect(std::vector<Completion>* completions);
  void ArmWake();
  io_uring_sqe* NextSqe();

  io_uring ring_ = {};
  bool ring_made_ = false;
  int wake_fd_ = -1;
  uint64_t wake_value_ = 0;  // the kernel writes it
  bool wake_armed_ = false;
  uint32_t max_in_flight_ = 0;
  std::string features_;
  absl::Status buffers_status_;        // why no buffer can be registered
  std::vector<Completion> collected_;  // while making room in the submission queue
};

}  // namespace kvkeep
