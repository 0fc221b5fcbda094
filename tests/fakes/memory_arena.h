// MemoryArena: an Arena on the heap, with segments of any size, for tests of the store. With
// `outlives` it has marks, like an arena that the daemon finds again after a restart: a test passes
// the same object to one store after the other. A part of its memory may be still to come. Each
// segment may lie on a NUMA node of its own.
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
    for (size_t i = 0; i < segment_count(); ++i) there_.push_back(BlocksOf(i));
  }

  // Gives memory to this many blocks of the segment; TakeMore adds more. REQUIRES: no store uses
  // it.
  void SetThere(size_t segment, uint64_t blocks) {
    KVKEEP_CHECK(blocks <= BlocksOf(segment));
    there_[segment] = blocks;
  }
  bool HasMemory(BlockNumber block) const override {
    return block.value() % segment_.value() < there_[block.value() / segment_.value()];
  }
  bool SegmentIsWhole(size_t segment) const override {
    return there_[segment] == BlocksOf(segment);
  }
  std::vector<Extent> ToCome() const override {
    std::vector<Extent> runs;
    for (size_t i = 0; i < there_.size(); ++i) AddRun(i, there_[i], BlocksOf(i), &runs);
    return runs;
  }
  std::vector<Extent> TakeMore() override {
    std::vector<Extent> came;
    uint64_t left = most_at_once;
    for (size_t i = 0; i < there_.size(); ++i) {
      const uint64_t before = there_[i];
      there_[i] += std::min(left, BlocksOf(i) - before);
      left -= there_[i] - before;
      AddRun(i, before, there_[i], &came);
    }
    return came;
  }

  uint64_t capacity_bytes() const override { return capacity_.value() * kBlockBytes; }
  BlockCount capacity_blocks() const override { return capacity_; }
  BlockCount segment_blocks() const override { return segment_; }
  const Uuid& uuid() const override { return uuid_; }
  void SetUuid(uint8_t first_byte) { uuid_.bytes[0] = first_byte; }
  std::span<std::byte> Memory(const Extent& extent) override {
    KVKEEP_CHECK(extent.end() <= capacity_.value());
    KVKEEP_CHECK(HasMemory(extent.first) && HasMemory(BlockNumber(extent.end() - 1)));
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
  using Arena::NodeOf;
  std::optional<int> NodeOf(BlockNumber block) const override {
    if (!has_nodes) return std::nullopt;
    return static_cast<int>(block.value() / segment_.value());
  }
  absl::StatusOr<int> OpenForClient(size_t) override {
    return open("/dev/null", O_RDONLY | O_CLOEXEC);  // stands for it
  }
  std::vector<Extent> TakeBroken() override { return std::exchange(broken, {}); }
  Stats stats() const override {
    return {.capacity_bytes = capacity_bytes(), .survives_restart = !marks_.empty()};
  }
  std::string describe() const override { return "arena=memory"; }

  std::vector<Extent> broken;          // returned by the next TakeBroken
  uint64_t most_at_once = UINT64_MAX;  // blocks, by one TakeMore
  bool has_nodes = false;              // segment 0 lies on node 0, and so on

 private:
  uint64_t BlocksOf(size_t segment) const {
    return std::min(segment_.value(), capacity_.value() - segment * segment_.value());
  }
  void AddRun(size_t segment, uint64_t begin, uint64_t end, std::vector<Extent>* runs) const {
    if (begin == end) return;
    runs->push_back({BlockNumber(segment * segment_.value() + begin), BlockCount(end - begin)});
  }

  const BlockCount capacity_;
  const BlockCount segment_;
  Uuid uuid_;
  AlignedBytes bytes_;
  std::vector<uint64_t> marks_;
  std::vector<uint64_t> there_;  // by segment, blocks
};

}  // namespace kvkeep
