// ChunkIndex: the durable list of the chunks on one device. The seam to RocksDB.
//
// Records only, never payload. The table in DRAM answers lookups; the index is read at start and
// written in batches by one index thread. All calls block, so never make one on a thread of gRPC or
// of an I/O ring, or while the store's lock is held. Commit, Sync and Scan may run on different
// threads at once.
//
// Durability: a committed batch survives a dead process; after Sync it survives power loss.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/index/index_stats.h"
#include "tiers/index/recency.h"
#include "tiers/index/record.h"

namespace kvkeep {

struct IndexBatch {
  std::vector<IndexRecord> adds;
  std::vector<ChunkId> removes;  // adds and removes name different chunks
  // First blocks of the images that go with this batch: those of `removes`, and those of chunks
  // whose record was or is overwritten. The index ignores them; the device's live map (tiers/nvme)
  // uses them.
  std::vector<BlockNumber> freed;
  // Sequences of removed records whose recency was saved. Their recency entries are removed too.
  std::vector<CommitSequence> forgotten;
  bool empty() const { return adds.empty() && removes.empty(); }
};

class ChunkIndex {
 public:
  virtual ~ChunkIndex() = default;

  // All or nothing. Unavailable: the database would stall, or could not read a file of its own; the
  // next Commit tries again. Any error leaves the batch unapplied.
  virtual absl::Status Commit(const IndexBatch& batch) = 0;
  // Makes committed batches durable (SyncWAL), then records "stable to `mark`" durably.
  // Unavailable: as of Commit. Nothing is known to be lost then, and another Sync may succeed.
  virtual absl::Status Sync(const StableMark& mark) = 0;
  virtual absl::StatusOr<StableMark> ReadStableMark() = 0;  // zero when never written
  // Visits every record, in any order. Counts undecodable ones without a visit. Stops when `visit`
  // returns false.
  struct ScanResult {
    uint64_t records = 0;
    uint64_t undecodable = 0;
  };
  virtual absl::StatusOr<ScanResult> Scan(absl::FunctionRef<bool(const IndexRecord&)> visit) = 0;

  // Saves how recently chunks were wanted, by their records' sequences: at most kMostRecencyDeltas,
  // all or nothing, as durable as a Commit.
  static constexpr size_t kMostRecencyDeltas = 4096;
  virtual absl::Status SaveRecency(std::span<const RecencyDelta> deltas) = 0;
  // Visits all that was saved, in the order of the sequences, but for entries that do not decode.
  // Stops when `visit` is false.
  virtual absl::Status ScanRecency(absl::FunctionRef<bool(const RecencyDelta&)> visit) = 0;

  // Small named values of the device (namespace declarations, epochs), at most 64 MiB each, as
  // durable as a Commit.
  virtual absl::Status PutMeta(absl::string_view name, absl::string_view value) = 0;
  virtual absl::Status EraseMeta(absl::string_view name) = 0;  // OK when there is none
  virtual absl::StatusOr<std::optional<std::string>> GetMeta(absl::string_view name) = 0;
  virtual absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ListMeta(
      absl::string_view prefix) = 0;

  // Returns the bytes that the files of the index take, as writers count them now and then. Never
  // waits.
  virtual uint64_t disk_bytes() const = 0;
  // Returns the database's stats; empty for an index without one. Never waits for a disk.
  virtual IndexStats stats() const { return {}; }
};

}  // namespace kvkeep
