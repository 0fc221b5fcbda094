#include "tiers/nvme/live_index.h"

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

absl::Status LiveIndex::CatchUp() {
  if (whole_.has_value()) {
    KVKEEP_RETURN_IF_ERROR(map_.Replace(*whole_));
    whole_.reset();
  }
  KVKEEP_RETURN_IF_ERROR(map_.Set(late_));
  late_.clear();
  return absl::OkStatus();
}

absl::Status LiveIndex::Commit(const IndexBatch& batch) {
  in_use_ = true;
  KVKEEP_RETURN_IF_ERROR(CatchUp());
  KVKEEP_RETURN_IF_ERROR(map_.Clear(batch.freed));
  KVKEEP_RETURN_IF_ERROR(index_->Commit(batch));
  for (const IndexRecord& record : batch.adds) {
    KVKEEP_CHECK(!record.extents.empty());
    late_.push_back(record.extents[0].first);
  }
  // The batch is applied, whatever becomes of the map; the next one begins with another attempt.
  CatchUp().IgnoreError();
  return absl::OkStatus();
}

absl::Status LiveIndex::Sync(const StableMark& mark) {
  KVKEEP_RETURN_IF_ERROR(map_.Sync());
  return index_->Sync(mark);
}

absl::StatusOr<ChunkIndex::ScanResult> LiveIndex::Scan(
    absl::FunctionRef<bool(const IndexRecord&)> visit) {
  if (in_use_.exchange(true)) return index_->Scan(visit);
  KVKEEP_CHECK(!whole_.has_value() && late_.empty());
  BlockSet images(blocks_);
  bool whole = true;
  const absl::StatusOr<ScanResult> scanned = index_->Scan([&](const IndexRecord& record) {
    const BlockNumber first = record.extents[0].first;
    if (first.value() < blocks_.value()) images.Insert(first);
    whole = visit(record);
    return whole;
  });
  if (scanned.ok() && whole) {
    whole_ = std::move(images);
    // A device that takes no writes still serves its chunks.
    CatchUp().IgnoreError();
  }
  return scanned;
}

}  // namespace kvkeep
