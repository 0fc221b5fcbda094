// RequestWindow: limits how many requests an endpoint is given at a time.
//
// It grows while it is in use: by one for each answer until it first shrinks, from then on by one
// for each window of answers. It shrinks to half when bodies are slow, as they share a line, and to
// 0.7 of itself when the server asks for less. If that was not enough, all requests are held, for a
// time that doubles as long as refusals go on. (A hold at each first refusal left half of a server
// unused that takes a few requests at a time.) Answers to requests sent before it last shrank do
// not shrink it again: a server that turns down 40 requests at once said one thing, not 40.
//
// Writes yield: a quarter of the connections, none in a small window that reads use, or soon after
// the server asked for less. They have a limit of their own in that quarter, which halves when they
// are slow. A read does not wait for a write while there is another connection.
// A plain value: time comes from the caller. Thread-compatible.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "tiers/base/clock.h"
#include "tiers/base/random.h"

namespace kvkeep {

struct WindowOptions {
  uint32_t first = 16;
  uint32_t most = 64;  // g4.connections
  std::chrono::milliseconds first_hold{1000}, longest_hold{60'000};  // doubling, a quarter jitter
  uint32_t least_for_writes = 4;
  std::chrono::milliseconds between_halvings{1000};
  std::chrono::seconds no_writes_after_throttle{5};
};

class RequestWindow {
 public:
  enum class Kind : uint8_t { kRead, kWrite };
  class Ticket {
    friend class RequestWindow;
    uint64_t epoch_ = 0;
    Kind kind_ = Kind::kRead;
  };

  // `random` outlives this.
  RequestWindow(const WindowOptions& options, RandomSource* random);

  // Returns a ticket if a request may be sent now. The caller tells its end once, by one of the
  // four calls below.
  std::optional<Ticket> TryStart(Kind kind, MonotonicTime now);
  void Served(Ticket ticket);
  // `retry_after`: what the server asked for, if it did; taken up to the longest hold.
  void Throttled(Ticket ticket, MonotonicTime now,
                 std::optional<std::chrono::seconds> retry_after = std::nullopt);
  // Tells that its body moved, but too slowly.
  void Slow(Ticket ticket, MonotonicTime now);
  // Tells that it failed or was cancelled, which does not show how much the server can take.
  void Ended(Ticket ticket);

  uint32_t size() const { return size_; }
  // Returns whether the window of this kind is as small as it can be: one request.
  bool is_least(Kind kind) const { return (kind == Kind::kWrite ? write_size_ : size_) == 1; }
  uint32_t in_flight() const { return reads_ + writes_; }
  // Returns the time until which nothing is sent; may lie in the past.
  MonotonicTime held_until() const { return held_until_; }

 private:
  void Leave(Ticket ticket);
  uint32_t most_writes() const;

  const WindowOptions options_;
  RandomSource& random_;
  uint32_t size_;
  uint32_t write_size_, served_writes_ = 0;
  uint32_t reads_ = 0, writes_ = 0;
  uint32_t served_ = 0;  // since it last grew or shrank
  uint64_t epoch_ = 0;   // times it shrank
  std::chrono::nanoseconds hold_{0};  // the last one, whole; zero: served a window since
  bool shrank_ = false;               // since it served a window
  std::optional<MonotonicTime> halved_at_, writes_halved_at_;
  MonotonicTime held_until_{MonotonicTime::min()};
  std::optional<MonotonicTime> throttled_at_;
};

}  // namespace kvkeep
