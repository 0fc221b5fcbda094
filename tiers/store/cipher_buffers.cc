#include "tiers/store/cipher_buffers.h"

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

static_assert(CipherBuffers::kUnitBytes >= kPieceBytes + kMaxTailBytes + 2 * kBlockBytes);
static_assert(CipherBuffers::kUnitBytes % kBlockBytes == 0);

CipherBuffers::Buffer::~Buffer() {
  if (pool_ != nullptr) pool_->Give(*this);
}

CipherBuffers::Buffer CipherBuffers::Take(size_t bytes) {
  KVKEEP_CHECK(bytes > 0 && bytes % kBlockBytes == 0);
  Buffer buffer;
  buffer.pool_ = shared_from_this();
  buffer.bytes_ = bytes;
  {
    MutexLock lock(&mu_);
    bytes_out_.Take(bytes);
    if (Keeps(bytes) && !kept_.empty()) {
      buffer.memory_ = std::move(kept_.back());
      kept_.pop_back();
    }
  }
  if (buffer.memory_ == nullptr) {
    const size_t all = Keeps(bytes) ? kUnitBytes : bytes;
    buffer.memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, all)));
  }
  return buffer;
}

void CipherBuffers::Give(Buffer& buffer) {
  MutexLock lock(&mu_);
  bytes_out_.Give(buffer.bytes_);
  if (buffer.memory_ == nullptr) return;
  if (Keeps(buffer.bytes_) && kept_.size() < kMaxKept) kept_.push_back(std::move(buffer.memory_));
}

uint64_t CipherBuffers::bytes_out() const {
  MutexLock lock(&mu_);
  return bytes_out_;
}

}  // namespace kvkeep::store_internal
