// LiveIndex: a device's index that keeps the device's live map (live_map.h) in step with it.
//
//   start    after the first whole scan the map says what the records say
//   batch    bits of the images that go are cleared before the index forgets them; bits of
//            new ones are set after it has them
//
// So a bit is only ever set for an image whose record is committed and was not removed. A killed
// daemon can leave behind a record without its bit (of its last batch): that chunk is served as any
// other, and only a rebuild of the index would miss it. A power cut may take back unsynced changes,
// here as in the index.
//
// Thread-safety as ChunkIndex; batches come one after the other. A map that cannot be written fails
// the next batch, before the index hears of it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "tiers/index/chunk_index.h"
#include "tiers/nvme/live_map.h"

namespace kvkeep {

class LiveIndex final : public ChunkIndex {
 public:
  LiveIndex(std::unique_ptr<ChunkIndex> index, LiveMap map, BlockCount blocks)
      : index_(std::move(index)), map_(std::move(map)), blocks_(blocks) {}

  absl::Status Commit(const IndexBatch& batch) override;
  absl::Status Sync(const StableMark& mark) override;
  absl::StatusOr<StableMark> ReadStableMark() override { return index_->ReadStableMark(); }
  absl::StatusOr<ScanResult> Scan(absl::FunctionRef<bool(const IndexRecord&)> visit) override;
  absl::Status SaveRecency(std::span<const RecencyDelta> deltas) override {
    return index_->SaveRecency(deltas);
  }
  absl::Status ScanRecency(absl::FunctionRef<bool(const RecencyDelta&)> visit) override {
    return index_->ScanRecency(visit);
  }
  absl::Status PutMeta(absl::string_view name, absl::string_view value) override {
    return index_->PutMeta(name, value);
  }
  absl::Status EraseMeta(absl::string_view name) override { return index_->EraseMeta(name); }
  absl::StatusOr<std::optional<std::string>> GetMeta(absl::string_view name) override {
    return index_->GetMeta(name);
  }
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ListMeta(
      absl::string_view prefix) override {
    return index_->ListMeta(prefix);
  }
  uint64_t disk_bytes() const override { return index_->disk_bytes(); }
  IndexStats stats() const override { return index_->stats(); }

 private:
  // Writes pending changes to the map.
  absl::Status CatchUp();

  const std::unique_ptr<ChunkIndex> index_;
  LiveMap map_;
  const BlockCount blocks_;
  std::atomic<bool> in_use_ = false;  // a scan or a batch came before
  // Between the first scan and the batches, and then of the thread that commits.
  std::optional<BlockSet> whole_;
  std::vector<BlockNumber> late_;
};

}  // namespace kvkeep
