// MessageHold: the daemon's memory that messages of a connection hold: half a message, puts that
// are not done, and replies that the client has not read. All connections together have one limit,
// LocalLimits::max_message_bytes, and each tenant has its part of it.
//
// Accounts are thread-safe; a hold is for one thread.
#pragma once

#include <absl/status/status.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/local/context.h"

namespace kvkeep {

// The account of one tenant.
struct MessageAccount {
  explicit MessageAccount(uint64_t most) : max_bytes(most) {}
  // Returns whether so much is in use that a client with work under way should wait.
  bool busy() const { return bytes.load(std::memory_order_relaxed) > max_bytes / 2; }

  const uint64_t max_bytes;
  std::atomic<uint64_t> bytes{0};
};

class MessageHold {
 public:
  // `account` null: the tenant has no limit of its own.
  MessageHold(std::shared_ptr<const LocalContext> context, std::shared_ptr<MessageAccount> account)
      : context_(std::move(context)), account_(std::move(account)) {}
  ~MessageHold() { Clear(); }
  MessageHold(MessageHold&& other) noexcept
      : context_(other.context_),
        account_(other.account_),
        bytes_(std::exchange(other.bytes_, 0)) {}
  MessageHold& operator=(MessageHold&&) = delete;

  // ResourceExhausted names the limit, and adds nothing.
  absl::Status Add(uint64_t bytes);
  // REQUIRES: bytes <= bytes().
  void Remove(uint64_t bytes);
  void Clear() { Remove(bytes_); }
  uint64_t bytes() const { return bytes_; }

 private:
  const std::shared_ptr<const LocalContext> context_;
  const std::shared_ptr<MessageAccount> account_;
  uint64_t bytes_ = 0;
};

}  // namespace kvkeep
