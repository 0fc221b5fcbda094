// MemoryNvmeDevice: an NvmeDevice over any Device and any ChunkIndex, for tests of the store.
//
// Block 0 is the label, as on a real one. Borrowed parts outlive it.
#pragma once

#include "tiers/nvme/nvme_device.h"

namespace kvkeep {

class MemoryNvmeDevice final : public NvmeDevice {
 public:
  MemoryNvmeDevice(Device* io, ChunkIndex* index, uint8_t name) : io_(io), index_(index) {
    uuid_.bytes[0] = name;
  }

  const Uuid& uuid() const override { return uuid_; }
  const std::string& dir() const override { return dir_; }
  BlockCount capacity_blocks() const override {
    return BlockCount(io_->size_bytes() / kBlockBytes);
  }
  BlockCount barrier_blocks() const override { return capacity_blocks(); }
  ExtentList ReservedExtents() const override { return {Extent{BlockNumber(0), BlockCount(1)}}; }
  uint64_t used_directory_bytes() const override { return io_->size_bytes(); }
  uint64_t capacity_bytes() const override { return io_->size_bytes(); }
  bool index_over_budget() const override { return index_over_budget_; }
  Device& io() override { return *io_; }
  ChunkIndex& index() override { return *index_; }

  void set_index_over_budget(bool over) { index_over_budget_ = over; }

 private:
  Device* const io_;
  ChunkIndex* const index_;
  const std::string dir_ = "memory";
  Uuid uuid_;
  bool index_over_budget_ = false;
};

}  // namespace kvkeep
