// MemoryArena: an Arena on the heap, with segments of any size, for tests of the store. With
// `outlives`, it has marks, as one has that the daemon finds again after a restart: a test hands
// the same object to one store after the other.
#pragma once

#include <fcntl.h>

#include "tests/fakes/aligned_bytes.h"
#include "tiers/base/check.h"
#include "tiers/host/arena.h"

namespace kvkeep {

class MemoryArena final : public Arena {
 public:
  MemoryArena(BlockCount capacity, BlockCount segment, bool outlives = false)
      : capacity_(capacity),
        segment_(segment),
        bytes_(capacity.value() * kBlockBytes),
        marks_(outlives ? capacity.value() : 0) {
    uuid_.bytes[0] = 0xa7;
  }

  uint64_t capacity_bytes() const override { return capacity_.value() * kBlockBytes; }
  BlockCount capacity_blocks() const override { return capacity_; }
  BlockCount segment_blocks() const override { return segment_; }
  const Uuid& uuid() const override { return uuid_; }
  void SetUuid(uint8_t first_byte) { uuid_.bytes[0] = first_byte; }
  std::span<std::byte> Memory(const Extent& extent) override {
    KVKEEP_CHECK(extent.end() <= capacity_.value());
    return bytes_.span().subspan(extent.first.value() * kBlockBytes, extent.bytes());
  }
  std::span<uint64_t> live_marks() override { return marks_; }
  size_t segment_count() const override {
    return DivideRoundUp(capacity_.value(), segment_.value());
  }
  std::span<std::byte> SegmentMemory(size_t segment) override {
    const uint64_t begin = segment * segment_.value() * kBlockBytes;
    return bytes_.span().subspan(
        begin, std::min(segment_.value() * kBlockBytes, bytes_.span().size() - begin));
  }
  absl::StatusOr<int> OpenForClient(size_t) override {
    return open("/dev/null", O_RDONLY | O_CLOEXEC);  // stands for it
  }
  std::vector<BlockNumber> TakeBrokenBlocks() override { return std::exchange(broken, {}); }
  Stats stats() const override {
    return {.capacity_bytes = capacity_bytes(), .survives_restart = !marks_.empty()};
  }
  std::string describe() const override { return "arena=memory"; }

  std::vector<BlockNumber> broken;  // told by the next TakeBrokenBlocks

 private:
  const BlockCount capacity_;
  const BlockCount segment_;
  Uuid uuid_;
  AlignedBytes bytes_;
  std::vector<uint64_t> marks_;
};

}  // namespace kvkeep
