#include "server/sockets/http2_connection.h"

#include <algorithm>

namespace kvkeep {
namespace {

constexpr uint32_t kFreshHeaders = 64;  // that a connection may send, however much calls hold
constexpr uint32_t kFewHeaders = 8;     // in one read; a client that sends no more is cut off last
constexpr uint32_t kFewResets = 16;     // a client that sent no more is read, whatever others do
constexpr std::chrono::milliseconds kLongestMemoryHold{100};

// Returns the memory of calls above which connections are held; below it they are read again.
uint64_t Brake(const Http2Limits& limits) { return limits.call_memory_bytes / 3; }
uint64_t Release(const Http2Limits& limits) { return Brake(limits) / 4 * 3; }
uint64_t CutAll(const Http2Limits& limits) { return limits.call_memory_bytes / 2 * 3; }

bool CarriesNothing(const FrameHead& head) {
  switch (head.type) {
    case FrameType::kHeaders:
    case FrameType::kContinuation:
    case FrameType::kReset: return false;
    case FrameType::kData: return head.payload_bytes == 0;
    default: return true;
  }
}

}  // namespace

absl::string_view Http2HoldName(Http2Hold hold) {
  switch (hold) {
    case Http2Hold::kNone: return "none";
    case Http2Hold::kResets: return "resets";
    case Http2Hold::kMemory: return "memory";
    case Http2Hold::kFrames: return "frames";
  }
  return "";
}

bool ResetBudget::MayRead(uint64_t per_second, MonotonicTime now) {
  MutexLock lock(&mu_);
  if (tokens_.per_second() != per_second) tokens_ = TokenBucket(per_second);
  return !tokens_.Wait(now).has_value();
}

void ResetBudget::Take(uint64_t resets) {
  MutexLock lock(&mu_);
  tokens_.Take(resets);
}

bool ResetBudget::IsFull(MonotonicTime now) {
  MutexLock lock(&mu_);
  return !tokens_.limited() || tokens_.saved(now) >= tokens_.per_second();
}

Http2Hold Http2Connection::HoldNow(const Http2Limits& limits, uint64_t call_bytes,
                                   MonotonicTime now) {
  if (resets_->MayRead(limits.resets_per_second, now)) {
    own_resets_ = 0;
  } else if (own_resets_ > kFewResets) {
    return Http2Hold::kResets;
  }
  if (call_bytes < Release(limits)) fresh_headers_ = 0;
  if (call_bytes > Brake(limits) && fresh_headers_ > kFreshHeaders) return Http2Hold::kMemory;
  return frames_.Wait(now).has_value() ? Http2Hold::kFrames : Http2Hold::kNone;
}

Http2Connection::Turn Http2Connection::NextTurn(const Http2Limits& limits, uint64_t call_bytes,
                                                MonotonicTime now) {
  if (is_cut()) return {.kind = Turn::Kind::kCut};
  MutexLock lock(&mu_);
  const Http2Hold hold = HoldNow(limits, call_bytes, now);
  if (hold != Http2Hold::kNone) {
    if (!waits_since_.has_value()) waits_since_ = now;
    return {.kind = Turn::Kind::kWait, .hold = hold};
  }
  waits_since_.reset();
  headers_of_read_ = 0;
  const size_t most = reader_.data_to_come() + kReadBytes;
  if (unhandled_bytes_ >= most) {
    unhandled_bytes_ = 0;
    return {.kind = Turn::Kind::kYield};
  }
  return {.bytes = most - unhandled_bytes_};
}

bool Http2Connection::MayResume(const Http2Limits& limits, uint64_t call_bytes,
                                MonotonicTime now) {
  MutexLock lock(&mu_);
  if (waits_since_.has_value() && now - *waits_since_ >= kLongestMemoryHold) fresh_headers_ = 0;
  return HoldNow(limits, call_bytes, now) == Http2Hold::kNone;
}

void Http2Connection::Received(size_t bytes) {
  MutexLock lock(&mu_);
  unhandled_bytes_ += bytes;
}

void Http2Connection::Decrypted() {
  MutexLock lock(&mu_);
  unhandled_bytes_ = 0;
}

Http2Fault Http2Connection::Read(std::span<const std::byte> bytes, const Http2Limits& limits,
                                 uint64_t call_bytes, MonotonicTime now) {
  MutexLock lock(&mu_);
  Http2Fault fault = Http2Fault::kNone;
  size_t data_bytes = reader_.data_to_come();
  const bool whole = reader_.Read(bytes, [&](const FrameHead& head) {
    mu_.AssertHeld();
    if (head.type == FrameType::kData) data_bytes += head.payload_bytes;
    fault = Visit(head, limits, call_bytes, now);
    return fault == Http2Fault::kNone;
  });
  if (!whole) return fault;
  // Payload is bounded elsewhere (limits.receive_memory).
  data_bytes -= reader_.data_to_come();
  if (wire_ == Wire::kPlain) unhandled_bytes_ += bytes.size() - data_bytes;
  return Http2Fault::kNone;
}

Http2Fault Http2Connection::Visit(const FrameHead& head, const Http2Limits& limits,
                                  uint64_t call_bytes, MonotonicTime now) {
  frames_read_.fetch_add(1, std::memory_order_relaxed);
  const Http2Fault fault = rules_.Check(head, now);
  if (fault != Http2Fault::kNone) return fault;
  if (head.type == FrameType::kReset) {
    resets_->Take(1);
    ++own_resets_;
  }
  if (CarriesNothing(head)) frames_.Take(head.type == FrameType::kPing ? kFramesOfAPing : 1);
  if (head.type != FrameType::kHeaders) return Http2Fault::kNone;
  ++fresh_headers_;
  const bool too_much = call_bytes > limits.call_memory_bytes;
  const bool began_many = ++headers_of_read_ > kFewHeaders || call_bytes > CutAll(limits);
  return too_much && began_many ? Http2Fault::kMemory : Http2Fault::kNone;
}

}  // namespace kvkeep
