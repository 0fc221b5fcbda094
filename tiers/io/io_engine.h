// IoEngine: moves bytes for the files of a device on one thread. io_uring where the kernel has it,
// else a thread pool with the same behaviour. A drive that blocks a submission in the kernel blocks
// the thread: devices that are to be independent have an engine each.
//
// Owns one ring and its thread. Each opened device has a depth limit of its own; operations above
// it wait in order inside the engine, reads ahead of writes, with a share kept for writes so that
// they never starve. Files that lie on one drive are opened beside each other: all of them together
// have one such limit and order. Memory registered with RegisterBuffer is used as fixed buffers
// (pinned once). Every fallback is counted, and told once in `describe()`.
//
// The thread is kept on no NUMA node. Drives move the bytes themselves, so the node matters only to
// the microseconds that an operation of up to a MiB costs the thread; and files may lie on drives
// of several nodes, or come after the thread began.
//
// Thread-safe. Devices must be destroyed before their engine; destroying a device waits for its
// operations, callbacks included (so never do it on an engine's callback thread). An engine that is
// destroyed first completes waiting operations with Unavailable; nothing may be submitted
// afterwards.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tiers/base/executor.h"
#include "tiers/io/device.h"
#include "tiers/io/device_times.h"
#include "tiers/io/shared_buffers.h"

namespace kvkeep {

enum class IoMode { kAuto, kUring, kThreads };

struct IoEngineOptions {
  IoMode mode = IoMode::kAuto;
  uint32_t ring_entries = 256;    // power of two, 8..4096
  uint32_t fallback_threads = 4;  // 1..64, of the thread-pool engine
  // What RegisterBuffer takes over if it is pinned there, in place of pinning it once more. Null:
  // nothing is shared.
  std::shared_ptr<const SharedBuffers> shared;

  absl::Status Validate() const;
};

struct DeviceOptions {
  std::string path;     // a regular file or a block device, already sized
  uint32_t depth = 32;  // operations in the kernel at once, 1..1024
  // Larger operations are cut into this size; multiple of 4 KiB, at most 1 GiB.
  size_t max_io_bytes = 1 << 20;
  // Bytes of operations in the kernel at once; a single operation may have more. Reads cannot
  // overtake operations that are already in the kernel, hence this limit. 16 MiB keep a drive of
  // 14 GB/s busy for 1 ms.
  uint64_t max_bytes_out = 16 << 20;
  bool read_only = false;
  // Takes flock(LOCK_EX | LOCK_NB) on the very file description that I/O goes through, so that I/O
  // of a dead process that is still in flight holds the lock. Unavailable when another has it.
  bool lock = false;
  // Records its operations' times, perhaps with other files'; must outlive the device. Null: none
  // are recorded.
  DeviceTimes* times = nullptr;
  // Another file of the same drive, open in this engine: they have one queue, with the limits
  // of the first of them. Null: it is the first.
  const Device* beside = nullptr;

  absl::Status Validate() const;
};

class IoEngine {
 public:
  struct Stats {
    uint64_t reads = 0, writes = 0;            // operations completed well
    uint64_t read_bytes = 0, write_bytes = 0;  // of those
    uint64_t errors = 0;                       // operations completed with an error
    uint64_t short_resumed = 0;                // short I/O continued
    uint64_t retried = 0;                      // I/O the kernel had no room for, issued again
    uint64_t fixed_buffer_ios = 0;             // I/O (cut) that used registered memory
    uint64_t plain_buffer_ios = 0;             // did not
    uint64_t buffer_registration_failures = 0;
    uint64_t shared_buffers = 0;  // registered by taking over what IoEngineOptions::shared pinned
    uint64_t buffered_opens = 0;  // O_DIRECT not to be had
    uint64_t in_flight = 0;       // I/O (cut) in the kernel now
    uint64_t queued = 0;          // operations not yet wholly in the kernel, now
  };

  static constexpr uint32_t kMaxRegisteredBuffers = 16384;      // the kernel's limit
  static constexpr uint64_t kMaxRegisteredBytes = 1ull << 30;  // of one, the kernel's limit

  virtual ~IoEngine() = default;

  // Pins `memory` for fixed I/O. At most 1 GiB each, aligned to 4 KiB. On failure (memlock, kernel)
  // I/O on it still works, unregistered: counted, and the status says why. The memory must stay
  // mapped as long as the engine lives. At most kMaxRegisteredBuffers.
  virtual absl::Status RegisterBuffer(std::span<std::byte> memory) = 0;
  virtual absl::StatusOr<std::unique_ptr<Device>> Open(const DeviceOptions& options) = 0;
  // Runs tasks on the engine's one thread, between operations. Null: the engine has several
  // threads, which wait for disks.
  virtual Executor* loop() { return nullptr; }
  virtual Stats stats() const = 0;
  // Returns one line for the log: the engine, its features, fallbacks and their reasons.
  virtual std::string describe() const = 0;
};

// kAuto: io_uring when the kernel allows it, else threads. kUring: an error when it does not.
absl::StatusOr<std::unique_ptr<IoEngine>> CreateIoEngine(const IoEngineOptions& options);

}  // namespace kvkeep
