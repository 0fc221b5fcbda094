#include "tiers/nvme/multi_file_device.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {

MultiFileDevice::MultiFileDevice(std::vector<std::unique_ptr<Device>> files,
                                 std::vector<uint64_t> sizes, uint64_t file_bytes)
    : sizes_(std::move(sizes)), file_bytes_(file_bytes) {
  KVKEEP_CHECK(!files.empty() && files.size() == sizes_.size());
  for (size_t i = 0; i + 1 < sizes_.size(); ++i) KVKEEP_CHECK(sizes_[i] == file_bytes_);
  KVKEEP_CHECK(sizes_.back() <= file_bytes_);
  KVKEEP_CHECK(sizes_.back() > 0 && sizes_.back() % kBlockBytes == 0);
  KVKEEP_CHECK(file_bytes_ % kBlockBytes == 0);
  size_bytes_ = (files.size() - 1) * file_bytes_ + sizes_.back();
  for (std::unique_ptr<Device>& file : files) {
    files_.push_back(std::make_unique<File>());
    files_.back()->device = std::move(file);
  }
  // The caller's own thread syncs one of the files.
  const size_t threads = std::min(files_.size(), kSyncsAtOnce) - 1;
  if (threads > 0) syncs_ = std::make_unique<ThreadPool>("kvkeep-sync", static_cast<int>(threads));
}

void MultiFileDevice::Submit(IoOperation operation) {
  const uint64_t offset = operation.offset.value();
  KVKEEP_CHECK(offset < size_bytes_);
  const size_t number = offset / file_bytes_;
  const uint64_t in_file = offset % file_bytes_;
  KVKEEP_CHECK(operation.bytes <= sizes_[number] - in_file);
  KVKEEP_CHECK(operation.kind == IoOperation::Kind::kRead || in_file >= kBlockBytes);
  KVKEEP_CHECK(operation.bytes > 0 && operation.done != nullptr);
  operation.offset = DeviceOffset(in_file);
  File* const file = files_[number].get();
  if (operation.kind == IoOperation::Kind::kWrite) {
    // Marks the file when the write ends, not now: a sync that began in between would remove the
    // mark too early. A failed write may have written something, too.
    operation.done = [file, done = std::move(operation.done)](absl::Status status) mutable {
      file->unsynced = true;
      std::move(done)(std::move(status));
    };
  }
  file->device->Submit(std::move(operation));
}

absl::Status MultiFileDevice::Sync() {
  {
    MutexLock lock(&mu_);
    while (syncing_) synced_.Wait(&mu_);  // its files are not stable before it ends
    if (!failed_.ok()) return failed_;
    syncing_ = true;
  }
  const absl::Status status = SyncFiles();
  MutexLock lock(&mu_);
  KVKEEP_CHECK(syncing_);
  syncing_ = false;
  failed_ = status;
  synced_.NotifyAll();
  return status;
}

absl::Status MultiFileDevice::SyncFiles() {
  std::vector<File*> unsynced;
  for (const std::unique_ptr<File>& file : files_) {
    if (file->unsynced.exchange(false)) unsynced.push_back(file.get());
  }
  std::vector<absl::Status> statuses(unsynced.size());
  KVKEEP_CHECK(unsynced.size() <= 1 || syncs_ != nullptr);
  for (size_t i = 1; i < unsynced.size(); ++i) {
    syncs_under_way_.Add();
    syncs_->Post([this, file = unsynced[i], status = &statuses[i]] {
      *status = file->device->Sync();
      syncs_under_way_.Done();
    });
  }
  if (!unsynced.empty()) statuses[0] = unsynced[0]->device->Sync();
  syncs_under_way_.WaitNone();
  absl::Status first;
  for (absl::Status& status : statuses) first.Update(std::move(status));
  return first;
}

bool MultiFileDevice::direct() const {
  return std::all_of(files_.begin(), files_.end(),
                     [](const auto& file) { return file->device->direct(); });
}

}  // namespace kvkeep
