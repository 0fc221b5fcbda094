#include "server/local/message_memory.h"

#include <absl/strings/str_cat.h>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// Adds `bytes` unless the sum exceeds `most`.
bool AddUpTo(std::atomic<uint64_t>& held, uint64_t bytes, uint64_t most) {
  const uint64_t before = held.fetch_add(bytes, std::memory_order_relaxed);
  if (before <= most && bytes <= most - before) return true;
  held.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

absl::Status Over(const char* whose, uint64_t bytes, uint64_t held, uint64_t most) {
  return absl::ResourceExhaustedError(
      absl::StrCat("local_memory: ", bytes, " bytes are wanted for a message, ", whose, " holds ",
                   held, ", allowed are ", most, "; come back when others are done"));
}

}  // namespace

absl::Status MessageHold::Add(uint64_t bytes) {
  LocalCounters& counters = *context_->counters;
  if (account_ != nullptr && !AddUpTo(account_->bytes, bytes, account_->max_bytes)) {
    counters.refused_messages.fetch_add(1, std::memory_order_relaxed);
    return Over("this tenant", bytes, account_->bytes, account_->max_bytes);
  }
  const uint64_t most = context_->limits.max_message_bytes;
  if (!AddUpTo(counters.message_bytes, bytes, most)) {
    if (account_ != nullptr) account_->bytes.fetch_sub(bytes, std::memory_order_relaxed);
    counters.refused_messages.fetch_add(1, std::memory_order_relaxed);
    return Over("the local path", bytes, counters.message_bytes, most);
  }
  bytes_ += bytes;
  return absl::OkStatus();
}

void MessageHold::Remove(uint64_t bytes) {
  KVKEEP_CHECK(bytes <= bytes_);
  if (bytes == 0) return;
  bytes_ -= bytes;
  if (account_ != nullptr) account_->bytes.fetch_sub(bytes, std::memory_order_relaxed);
  context_->counters->message_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace kvkeep
