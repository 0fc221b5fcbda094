#include "tiers/fsck/encrypted_check.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep::fsck_internal {

void EncryptedCheck::Decrypt(std::span<std::byte> bytes) {
  while (!bytes.empty() && unit_ < tags_.size()) {
    if (!message_.has_value()) message_.emplace(cipher_.Unit(AesGcm::Direction::kDecrypt, unit_));
    KVKEEP_CHECK(at_ < shape_.unit_end(unit_));
    const size_t count = std::min<uint64_t>(shape_.unit_end(unit_) - at_, bytes.size());
    message_->Append(bytes.first(count), bytes.data());
    at_ += count;
    bytes = bytes.subspan(count);
    if (at_ != shape_.unit_end(unit_)) continue;
    if (!message_->Matches(tags_[unit_])) bad_units_.push_back(unit_);
    message_.reset();
    ++unit_;
  }
  KVKEEP_CHECK(bytes.empty());
}

}  // namespace kvkeep::fsck_internal
