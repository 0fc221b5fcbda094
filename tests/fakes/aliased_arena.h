// AliasedArena: an Arena of any capacity on a few megabytes of memory, for tests and benchmarks of
// the store's bookkeeping. Blocks share memory, so bytes are meaningless: do not read them back,
// and do not write them to a device. Memory() takes extents of at most kWindowBlocks.
#pragma once

#include "tests/fakes/aligned_bytes.h"
#include "tiers/base/check.h"
#include "tiers/host/arena.h"

namespace kvkeep {

class AliasedArena final : public Arena {
 public:
  static constexpr uint64_t kWindowBlocks = 256;

  explicit AliasedArena(BlockCount capacity, BlockCount segment = BlockCount(1 << 18))
      : capacity_(capacity), segment_(segment), bytes_(2 * kWindowBlocks * kBlockBytes) {
    uuid_.bytes[0] = 0xa8;
  }

  uint64_t capacity_bytes() const override { return capacity_.value() * kBlockBytes; }
  BlockCount capacity_blocks() const override { return capacity_; }
  BlockCount segment_blocks() const override { return segment_; }
  const Uuid& uuid() const override { return uuid_; }
  std::span<std::byte> Memory(const Extent& extent) override {
    KVKEEP_CHECK(extent.end() <= capacity_.value() && extent.count.value() <= kWindowBlocks);
    return bytes_.span().subspan(extent.first.value() % kWindowBlocks * kBlockBytes,
                                 extent.bytes());
  }
  size_t segment_count() const override {
    return DivideRoundUp(capacity_.value(), segment_.value());
  }
  std::span<std::byte> SegmentMemory(size_t) override { return bytes_.span(); }
  absl::StatusOr<int> OpenForClient(size_t) override {
    return absl::UnimplementedError("memory of a test");
  }
  std::span<uint64_t> live_marks() override { return {}; }
  Stats stats() const override { return {.capacity_bytes = capacity_bytes()}; }
  std::string describe() const override { return "arena=aliased"; }

 private:
  const BlockCount capacity_;
  const BlockCount segment_;
  Uuid uuid_;
  AlignedBytes bytes_;
};

}  // namespace kvkeep
