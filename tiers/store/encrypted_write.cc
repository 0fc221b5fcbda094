#include "tiers/store/encrypted_write.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

EncryptedWrite::EncryptedWrite(Job job)
    : job_(std::move(job)),
      units_(job_.header.identity.shape.units()),
      lanes_left_(std::min(units_, kLanes)) {
  const ImageShape& shape = job_.header.identity.shape;
  uint64_t longest = 0;
  for (size_t unit : {size_t{0}, units_ - 1}) {  // the last one may be longer, by the tail
    longest = std::max(longest, shape.unit_end(unit) - shape.unit_begin(unit));
  }
  for (size_t lane = 0; lane < std::min(units_, kLanes); ++lane) {
    CipherBuffers::Buffer buffer = job_.buffers->Take(longest);
    if (buffer.data() == nullptr) break;  // fewer lanes are only slower
    lanes_.push_back({.buffer = std::move(buffer)});
  }
  lanes_left_ = lanes_.size();
}

void EncryptedWrite::Start() {
  if (!has_memory()) return std::move(job_.done)(AlignedPage::NoMemory(), Digest128{});
  for (size_t lane = 1; lane < lanes_.size(); ++lane) {
    job_.executor->PostNear(job_.node, [self = shared_from_this(), lane] { self->NextUnit(lane); });
  }
  NextUnit(0);
}

void EncryptedWrite::NextUnit(size_t lane) {
  size_t unit = 0;
  {
    MutexLock lock(&mu_);
    KVKEEP_CHECK(lanes_left_ > 0 && lanes_[lane].outstanding == 0);
    if (failure_.ok() && next_unit_ < units_) {
      unit = next_unit_++;
    } else if (--lanes_left_ > 0) {
      return;  // the last lane does the rest
    } else {
      unit = units_;
    }
  }
  if (unit == units_) return WriteHeader();
  EncryptUnit(job_.cipher, job_.source, unit, lanes_[lane].buffer.data(), &job_.header);
  WriteUnit(lane, unit);
}

void EncryptedWrite::WriteUnit(size_t lane, size_t unit) {
  const ImageShape& shape = job_.header.identity.shape;
  const uint64_t end = shape.unit_end(unit);
  std::byte* data = lanes_[lane].buffer.data();
  std::vector<IoOperation> writes;
  for (uint64_t at = shape.unit_begin(unit); at < end;) {
    const uint64_t wanted = std::min<uint64_t>(end - at, kPieceBytes);
    const ByteRun run = LocateInImage(job_.header.placement.extents, at, wanted);
    writes.push_back({.kind = IoOperation::Kind::kWrite,
                      .offset = DeviceOffset(run.tier_offset),
                      .data = data,
                      .bytes = run.bytes,
                      .done = [self = shared_from_this(), lane](absl::Status status) {
                        self->OnUnitWritten(lane, status);
                      }});
    data += run.bytes;
    at += run.bytes;
  }
  {
    MutexLock lock(&mu_);
    lanes_[lane].outstanding = static_cast<uint32_t>(writes.size());
  }
  for (IoOperation& write : writes) job_.device->Submit(std::move(write));
}

void EncryptedWrite::OnUnitWritten(size_t lane, const absl::Status& status) {
  job_.heard();
  {
    MutexLock lock(&mu_);
    failure_.Update(status);
    KVKEEP_CHECK(lanes_[lane].outstanding > 0);
    if (--lanes_[lane].outstanding > 0) return;
  }
  job_.executor->PostNear(job_.node, [self = shared_from_this(), lane] { self->NextUnit(lane); });
}

void EncryptedWrite::WriteHeader() {
  absl::Status failure;
  {
    MutexLock lock(&mu_);
    failure = failure_;
  }
  if (!failure.ok()) return std::move(job_.done)(std::move(failure), Digest128{});
  job_.cipher.EncryptChecksums(&job_.header);
  EncodeHeader(job_.header, job_.mac_key, header_page_.span());
  const BlockNumber first = job_.header.placement.extents[0].first;
  job_.device->Submit({.kind = IoOperation::Kind::kWrite,
                       .offset = DeviceOffset(first.value() * kBlockBytes),
                       .data = header_page_.bytes,
                       .bytes = kHeaderBytes,
                       .done = [self = shared_from_this()](absl::Status status) {
                         std::move(self->job_.done)(std::move(status),
                                                    HeaderRoot(self->header_page_.span()));
                       }});
}

}  // namespace kvkeep::store_internal
