// IndexCheck: checks the records of an index against each other, the images and the live map; then
// looks into the space that no record names. For one thread; reads on several of its own.
#pragma once

#include <absl/status/status.h>

#include <atomic>
#include <vector>

#include "tiers/base/block_set.h"
#include "tiers/fsck/findings.h"
#include "tiers/fsck/image_reader.h"
#include "tiers/index/doubtful.h"
#include "tiers/index/rocksdb_index.h"

namespace kvkeep::fsck_internal {

class IndexCheck {
 public:
  IndexCheck(const FsckOptions& options, const OfflineDevice& device, IndexInspector& index,
             Findings& findings, FsckReport& report);

  // An error says that the index could not be read to its end.
  absl::Status Run();

 private:
  struct Overlap {
    BlockNumber block;
    ChunkId id;
    CommitSequence sequence;
  };
  struct Unmarked {
    ChunkId id;
    BlockNumber first;
  };

  void TakeRecord(absl::string_view key, absl::string_view value);
  void Claim(const IndexRecord& record);
  void CompareWithLiveMap(const IndexRecord& record);
  // Checks the images of the records taken so far, in the order of their places.
  void CheckBatch();
  void CheckImage(const IndexRecord& record, ReadBuffer& buffer);
  // Scans a second time, for the other side of overlaps.
  absl::Status NameOverlaps();
  void TellUnmarked();
  void FindLost();
  void FindOrphans();
  // Claims the image that begins there. Returns false if none does.
  bool ClaimOrphan(BlockNumber block, ConstHeaderPage page);
  void CountSpace();
  bool MapCovers(BlockNumber block) const;
  // Returns whether the daemon's next start would doubt the record, even if its image is whole.
  bool IsDoubtful(CommitSequence sequence) const;
  // Returns whether a loss of power may explain this record's fault.
  bool MayBeStale(CommitSequence sequence, const ImageFault& fault) const;
  void Add(FsckProblem problem, BlockNumber where, const ChunkId& id, std::string what,
           std::string to_do, bool notice = false);

  const FsckOptions& options_;
  const OfflineDevice& device_;
  const DeviceSpace space_;
  IndexInspector& index_;
  Findings& findings_;
  FsckReport& report_;
  ProgressTeller progress_;

  StableMark mark_;
  Doubtful noted_;          // by an earlier start
  bool power_cut_ = false;  // since the mark, or perhaps so
  BlockSet claimed_;        // named by a record, or a label
  BlockSet begins_;         // a record's image begins there
  std::vector<IndexRecord> batch_;
  std::vector<Overlap> overlaps_;
  std::vector<Unmarked> unmarked_;  // those that are told
  uint64_t unmarked_records_ = 0;
  uint64_t used_blocks_ = 0, orphaned_blocks_ = 0;
  std::atomic<uint64_t> good_ = 0, bad_ = 0, stale_ = 0, unchecked_ = 0, plain_ = 0, doubtful_ = 0;
};

}  // namespace kvkeep::fsck_internal
