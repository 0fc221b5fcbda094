// MultiFileDevice: the data files of one device as one run of blocks.
//
// File i holds the blocks from i * file_bytes / 4096 on; only the last file may be shorter. An
// operation lies inside one file, and block 0 of a file (its label) is never written: both are
// CHECKs, since the allocator's barriers and reserved extents see to them. Thread-safe.
//
// A sync costs about what one flush of the drive does, however many files there are: only files
// written since the last sync are synced, all at once, and the kernel merges the waiting syncs into
// one flush. (syncfs would be one call, but waits for all that others write to the file system, and
// tells their errors as ours.)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/io/device.h"
#include "tiers/io/outstanding.h"

namespace kvkeep {

class MultiFileDevice final : public Device {
 public:
  // More than these are synced in turns.
  static constexpr size_t kSyncsAtOnce = 16;

  // REQUIRES: at least one file; every file but the last has file_bytes.
  MultiFileDevice(std::vector<std::unique_ptr<Device>> files, std::vector<uint64_t> sizes,
                  uint64_t file_bytes);

  void Submit(IoOperation operation) override;
  // Syncs the files that may have been written since the last sync, even if one fails. Syncs all
  // files the first time, as an earlier daemon may have left unsynced writes. Returns the first
  // error, and always that one from then on: the kernel tells of a failure once.
  absl::Status Sync() override;
  uint64_t size_bytes() const override { return size_bytes_; }
  bool direct() const override;  // all files

 private:
  struct File {
    std::atomic<bool> unsynced = true;  // a write ended since its last sync began
    std::unique_ptr<Device> device;     // goes first: until then callbacks may come
  };

  absl::Status SyncFiles();

  std::vector<std::unique_ptr<File>> files_;  // constant after construction
  const std::vector<uint64_t> sizes_;
  const uint64_t file_bytes_;
  uint64_t size_bytes_ = 0;            // constant after construction
  std::unique_ptr<ThreadPool> syncs_;  // null: there is one file
  Outstanding syncs_under_way_;        // of syncs_

  Mutex mu_;
  CondVar synced_;
  bool syncing_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
