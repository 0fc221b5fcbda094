// MultiFileDevice: the data files of one device as one run of blocks.
//
// File i holds the blocks from i * file_bytes / 4096 on; only the last file may be shorter. An
// operation lies inside one file, and block 0 of a file (its label) is never written: both are
// CHECKs, since the allocator's barriers and reserved extents see to them. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tiers/io/device.h"

namespace kvkeep {

class MultiFileDevice final : public Device {
 public:
  // REQUIRES: at least one file; every file but the last has file_bytes.
  MultiFileDevice(std::vector<std::unique_ptr<Device>> files, std::vector<uint64_t> sizes,
                  uint64_t file_bytes);

  void Submit(IoOperation operation) override;
  // All files, also after one failed; the first error.
  absl::Status Sync() override;
  uint64_t size_bytes() const override { return size_bytes_; }

 private:
  const std::vector<std::unique_ptr<Device>> files_;
  const std::vector<uint64_t> sizes_;
  const uint64_t file_bytes_;
  uint64_t size_bytes_ = 0;  // constant after construction
};

}  // namespace kvkeep
