#include "client/local/populate.h"

#include <sys/mman.h>

#include <algorithm>

namespace kvkeep::client {
namespace {

constexpr uint64_t kSliceBytes = 8 * kMiB;

}  // namespace

void Populate::Step() {
  if (segment_ == arena_->segments.size() || bytes_ >= most_bytes_) {
    done_ = true;
    return;
  }
  if (!arena_->segments[segment_]->whole()) {
    ++segment_;
    return;
  }
  const std::span<std::byte> memory = arena_->segments[segment_]->memory();
  const uint64_t slice = std::min<uint64_t>(kSliceBytes, memory.size() - offset_);
  // Failures do not matter: pages are then mapped when they are touched.
  if (madvise(memory.data() + offset_, slice, MADV_POPULATE_READ) != 0) {
    done_ = true;
    return;
  }
  bytes_ += slice;
  offset_ += slice;
  if (offset_ == memory.size()) {
    ++segment_;
    offset_ = 0;
  }
}

}  // namespace kvkeep::client
