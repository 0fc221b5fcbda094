// Http2Connection: what one client of gRPC has sent, and whether it may send more now.
//
// It decides; Http2Gate acts (http2_gate.h, which gives the reasons). Thread-safe; one thread at a
// time reads from the connection.
#pragma once

#include <absl/strings/string_view.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "server/sockets/frame_reader.h"
#include "server/sockets/http2_rules.h"
#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"
#include "tiers/base/token_bucket.h"
#include "tiers/base/units.h"

namespace kvkeep {

// Reason why a connection is not read for a while.
enum class Http2Hold : uint8_t {
  kNone,
  kResets,  // its owner resets more calls than `resets_per_second`
  kMemory,  // calls hold more than a third of `call_memory_bytes`, and it began many of them
  kFrames,  // too many frames that carry nothing
};
inline constexpr size_t kHttp2Holds = 4;  // kNone with them
// Returns its name in counters and the log.
absl::string_view Http2HoldName(Http2Hold hold);

struct Http2Limits {
  uint64_t call_memory_bytes = 128 * kMiB;
  uint64_t resets_per_second = 1000;  // of one owner; as many at once. 0: no limit
};

// The resets of one owner: a user at a listening socket, or an address.
class ResetBudget {
 public:
  // Returns whether the owner's connections may be read. `per_second`: the limit now.
  bool MayRead(uint64_t per_second, MonotonicTime now);
  void Take(uint64_t resets);
  // Returns whether nothing was taken that has not come back.
  bool IsFull(MonotonicTime now);

 private:
  Mutex mu_;
  TokenBucket tokens_ ABSL_GUARDED_BY(mu_);
};

// One connection at the gate. One thread at a time reads from it; any may ask.
class Http2Connection {
 public:
  enum class Wire { kPlain, kTls };
  struct Peer {
    std::string socket;  // that it came in by, for people
    std::string name;    // the peer's, for people
    std::string owner;   // whose resets count together
  };
  static constexpr size_t kReadBytes = 16 * kKiB;  // beside the payload of a DATA frame
  static constexpr uint32_t kFramesPerSecond = 50'000;
  static constexpr uint32_t kFramesOfAPing = 50;  // gRPC takes 3.5 KiB for each

  Http2Connection(int fd, Wire wire, Peer peer, std::shared_ptr<ResetBudget> resets)
      : fd_(fd), wire_(wire), peer_(std::move(peer)), resets_(std::move(resets)) {}

  // Describes what the next read may do.
  struct Turn {
    enum class Kind { kRead, kWait, kYield, kCut } kind = Kind::kRead;
    size_t bytes = 0;  // kRead: at most so many, at least one
    Http2Hold hold = Http2Hold::kNone;  // kWait: why
  };
  // kWait: the gate reads it again. kYield: gRPC is to work off what it has and comes again.
  Turn NextTurn(const Http2Limits& limits, uint64_t call_bytes, MonotonicTime now);
  // Counts `bytes` that were received; those of TLS still have to be decrypted.
  void Received(size_t bytes);
  // Reads what the client sent, in the clear. Returns the fault for which it is to be cut off.
  Http2Fault Read(std::span<const std::byte> bytes, const Http2Limits& limits, uint64_t call_bytes,
                  MonotonicTime now);
  // TLS: all that was received has been decrypted, as far as it can be.
  void Decrypted();

  // Returns whether it may be read again, after a kWait.
  bool MayResume(const Http2Limits& limits, uint64_t call_bytes, MonotonicTime now);
  void Cut() { cut_ = true; }
  // Returns true the first time only: one reader of the clear text may have it.
  bool Claim() { return !claimed_.exchange(true); }
  bool is_cut() const { return cut_; }

  int fd() const { return fd_; }
  Wire wire() const { return wire_; }
  const Peer& peer() const { return peer_; }
  uint64_t frames() const { return frames_read_; }

 private:
  Http2Hold HoldNow(const Http2Limits& limits, uint64_t call_bytes, MonotonicTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Http2Fault Visit(const FrameHead& head, const Http2Limits& limits, uint64_t call_bytes,
                   MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int fd_;
  const Wire wire_;
  const Peer peer_;
  const std::shared_ptr<ResetBudget> resets_;
  std::atomic<bool> cut_{false}, claimed_{false};
  std::atomic<uint64_t> frames_read_{0};
  Mutex mu_;
  FrameReader reader_ ABSL_GUARDED_BY(mu_);
  Http2Rules rules_ ABSL_GUARDED_BY(mu_);
  TokenBucket frames_ ABSL_GUARDED_BY(mu_){kFramesPerSecond};
  size_t unhandled_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // since gRPC last had to work off
  uint32_t own_resets_ ABSL_GUARDED_BY(mu_) = 0;     // since its owner might last reset more
  uint32_t headers_of_read_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t fresh_headers_ ABSL_GUARDED_BY(mu_) = 0;  // since calls held little
  std::optional<MonotonicTime> waits_since_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
