// DeviceQueue: the operations of one device, which may have several files. It decides which goes
// next, cuts it into fragments, and judges results. A pure state machine, no I/O and no threads:
// both engines and its tests drive it.
//
// - At most `depth` fragments of at most `max_bytes_out` bytes together are out (in the kernel) at
//   once; the rest waits in order of arrival. One fragment may always be out.
// - Reads go ahead of writes. While both wait, a write follows at the latest after every third
//   read, unless writes hold a quarter of the depth or of the bytes already: so writes always
//   advance, and slow ones cannot take the slots that reads need.
// - Operations above max_io_bytes are cut into fragments and complete as one. After the first
//   failed fragment no further one of that operation is cut.
//
// Not thread-safe: the owner guards it.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tiers/io/device.h"
#include "tiers/io/io_counters.h"

namespace kvkeep {

struct OpenDevice;  // engine_device.h

// One operation of a caller on its way. Shared by the queue and its fragments that are out.
struct IoRequest {
  IoOperation operation;
  std::shared_ptr<OpenDevice> file;  // that it is for; nothing to the queue
  absl::string_view name;            // of that file, for messages
  size_t cut_bytes = 0;        // handed out as fragments so far
  uint32_t fragments_out = 0;  // of them, not yet finished
  absl::Status status;         // of the first fragment that failed
};

// The bytes that one system call moves; shrinks from the front as bytes arrive.
struct IoFragment {
  std::shared_ptr<IoRequest> request;
  uint64_t offset = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  uint32_t fruitless = 0;  // results in a row that moved nothing

  bool is_read() const { return request->operation.kind == IoOperation::Kind::kRead; }
};

class DeviceQueue {
 public:
  // Results in a row without progress after which a fragment fails. Where the kernel is short of
  // something this takes about 4 s, as the pauses grow.
  static constexpr uint32_t kMaxFruitless = 64;
  static constexpr std::chrono::milliseconds kLongestPause{64};

  struct Outcome {
    enum class Next {
      kFinished,    // the fragment has left
      kAgain,       // issue what is left of it now
      kAgainLater,  // the kernel was short of something: issue it again after a pause
    };
    Next next = Next::kFinished;
    std::chrono::milliseconds pause{0};    // before kAgainLater
    std::shared_ptr<IoRequest> completed;  // the operation that ended with it, if one did
  };

  // DeviceOptions says what they mean.
  struct Limits {
    uint32_t depth;
    size_t max_io_bytes;
    uint64_t max_bytes_out;
  };

  // `counters` outlives the queue.
  DeviceQueue(const Limits& limits, IoCounters* counters);
  ~DeviceQueue();

  // REQUIRES: passed CheckOperation, and counted in counters->queued. `name` lives as long as
  // `file`, if there is one.
  void Push(IoOperation operation, absl::string_view name, std::shared_ptr<OpenDevice> file);
  // Returns the next fragment to issue, or none if nothing waits or a limit is reached.
  std::optional<IoFragment> Next();
  // `result` of issuing `fragment`: bytes moved, or a negated errno.
  Outcome OnResult(IoFragment& fragment, int64_t result);
  // Gives up all that is not out. Operations with fragments out complete when these are back.
  // Returns those that completed.
  std::vector<std::shared_ptr<IoRequest>> FailWaiting(const absl::Status& status);

  bool has_waiting() const { return !reads_.empty() || !writes_.empty(); }
  uint32_t out() const { return out_; }

 private:
  using Waiting = std::deque<std::shared_ptr<IoRequest>>;

  Waiting* Choose();
  bool WritesHoldTheirShare() const;
  Outcome Progress(IoFragment& fragment, size_t moved);
  Outcome Error(IoFragment& fragment, int error);
  Outcome Finish(IoFragment& fragment, absl::Status status);
  void Count(const IoRequest& request);
  static std::string Describe(const IoFragment& fragment);

  const Limits limits_;
  IoCounters* const counters_;

  Waiting reads_;  // only the front of each may be partly cut
  Waiting writes_;
  uint32_t out_ = 0, writes_out_ = 0;             // fragments
  uint64_t bytes_out_ = 0, write_bytes_out_ = 0;  // bytes of them that have not moved yet
  uint32_t reads_since_write_ = 0;
};

}  // namespace kvkeep
