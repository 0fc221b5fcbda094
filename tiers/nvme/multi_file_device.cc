#include "tiers/nvme/multi_file_device.h"

#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {

MultiFileDevice::MultiFileDevice(std::vector<std::unique_ptr<Device>> files,
                                 std::vector<uint64_t> sizes, uint64_t file_bytes)
    : files_(std::move(files)), sizes_(std::move(sizes)), file_bytes_(file_bytes) {
  KVKEEP_CHECK(!files_.empty() && files_.size() == sizes_.size());
  for (size_t i = 0; i + 1 < sizes_.size(); ++i) KVKEEP_CHECK(sizes_[i] == file_bytes_);
  KVKEEP_CHECK(sizes_.back() <= file_bytes_);
  size_bytes_ = (files_.size() - 1) * file_bytes_ + sizes_.back();
}

void MultiFileDevice::Submit(IoOperation operation) {
  const uint64_t offset = operation.offset.value();
  KVKEEP_CHECK(offset < size_bytes_);
  const size_t file = offset / file_bytes_;
  const uint64_t in_file = offset % file_bytes_;
  KVKEEP_CHECK(operation.bytes <= sizes_[file] - in_file);
  KVKEEP_CHECK(operation.kind == IoOperation::Kind::kRead || in_file >= kBlockBytes);
  operation.offset = DeviceOffset(in_file);
  files_[file]->Submit(std::move(operation));
}

absl::Status MultiFileDevice::Sync() {
  absl::Status first;
  for (const std::unique_ptr<Device>& file : files_) first.Update(file->Sync());
  return first;
}

}  // namespace kvkeep
