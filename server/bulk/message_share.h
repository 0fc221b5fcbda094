// BulkConnection::Share: a part of BulkMemory, given back when it is destroyed.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <memory>

#include "server/bulk/connection.h"

namespace kvkeep {

class BulkConnection::Share {
 public:
  // ResourceExhausted: messages of others have it.
  static absl::StatusOr<std::unique_ptr<Share>> Take(BulkMemory* memory, uint64_t bytes) {
    auto share = std::unique_ptr<Share>(new Share(memory, bytes));
    const uint64_t before = memory->bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (before + bytes <= BulkMemory::kMost) return share;
    return absl::ResourceExhaustedError(
        absl::StrCat("messages of the bulk door hold ", before, " bytes of ", BulkMemory::kMost));
  }
  ~Share() { memory_->bytes.fetch_sub(bytes_, std::memory_order_relaxed); }
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

 private:
  Share(BulkMemory* memory, uint64_t bytes) : memory_(memory), bytes_(bytes) {}

  BulkMemory* const memory_;
  const uint64_t bytes_;
};

}  // namespace kvkeep
