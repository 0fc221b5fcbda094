// MemoryIndex: a ChunkIndex in a std::map that can lose what a real one may lose.
//
// It stands for the files of the index, so it outlives the store that uses it: a simulator keeps it
// over a Kill or a PowerCut and passes it to the next incarnation. It uses the record format like
// RocksDB's index, so that undecodable records can be planted.
//
// After its process has died in the same boot, a real index has every write whose commit was
// answered: each went to the kernel first, none waits in a buffer of the process (rocksdb_index.h).
// There are two exceptions:
// - A write that failed may have reached the log all the same: the process never saw it, the next
//   one does. After it all writes fail until the index is opened again (Faults::breaks).
// - The drive lost what the kernel had handed it already (DriveForgets, a lying sync, a sync that
//   failed). The log then has a hole, behind clean pages of the page cache: a process reads right
//   until the cache drops them; from then on the log ends at the hole, whatever was synced behind
//   it. A table file that is written from memory makes the hole harmless.
//
// Thread-safe; deterministic when used from one thread.
#pragma once

#include <map>
#include <vector>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/mutex.h"
#include "tiers/index/chunk_index.h"

namespace kvkeep {

class MemoryIndex final : public ChunkIndex {
 public:
  // Chances of failing, per call. A refused or failed write is not applied.
  struct Faults {
    double commit_refused = 0;  // Unavailable, as in a stall; every other write but Sync's too
    double commit_error = 0;    // DataLoss; likewise
    double sync_error = 0;      // DataLoss; nothing became durable for certain
    double sync_lies = 0;       // OK; nothing became durable
    double sync_forgets = 0;    // OK; nothing became durable from some write since the last sync on
    double read_error = 0;      // DataLoss; for all reads
    // After a commit or sync that failed, and was not only refused, all fail; what failed may be in
    // the log. Until the process ends, or faults without this are set.
    bool breaks = false;
  };
  struct Stats {
    uint64_t commits = 0, refused = 0, errors = 0, syncs = 0, lies = 0;
    uint64_t lost_writes = 0;  // by power cuts, and to holes
    uint64_t phantoms = 0;     // writes that failed, and that the next process found
    uint64_t forgetful = 0;    // syncs that left a hole
    uint64_t meta_writes = 0, meta_bytes = 0;
    uint64_t recency_writes = 0, recency_entries = 0;  // batches, and what was in them
    uint64_t lost_tails = 0;  // ends of the log that the next process of the same boot did not find
  };

  explicit MemoryIndex(uint64_t seed = 1) : random_(seed) {}

  void SetFaults(const Faults& faults);
  // Ends the process: the kernel has all committed writes, and faults end. See above for the rest.
  void Kill();
  // The drive loses its power alone. If no process has the index open, the next one may find the
  // log shorter at once.
  void DriveForgets(uint64_t seed, bool open);
  // Returns whether a power cut now would leave the record unchanged.
  bool IsStable(const ChunkId& id) const;
  bool has_hole() const;
  // Returns whether a write to remove the record failed, so that the next process may not find it.
  bool MayForget(const ChunkId& id) const;
  // The machine dies: of the writes since the last good Sync only a random beginning is kept, as
  // the log is written in order. Faults end.
  void PowerCut(uint64_t seed);
  // Damages the stored record, so that Scan counts it as undecodable. REQUIRES: it is stored.
  void DamageRecord(const ChunkId& id);
  // Returns all records, even ones that Scan would not return.
  std::vector<IndexRecord> All() const;
  // The next Scan of this process fails with DataLoss after this many records.
  void FailNextScan(size_t after);
  // Only the next process gets a report of damage in the log.
  void DamageLog();
  size_t unsynced_writes() const;
  std::optional<IndexRecord> Find(const ChunkId& id) const;  // as Scan would visit it
  void Reseed(uint64_t seed);                                // as if made with it
  std::map<uint64_t, uint64_t> Recency() const;              // by sequence
  Stats counted() const;

  absl::Status Commit(const IndexBatch& batch) override;
  absl::Status Sync(const StableMark& mark) override;
  absl::StatusOr<StableMark> ReadStableMark() override;
  // Visits a snapshot, without the lock: `visit` may call back into the index.
  absl::StatusOr<ScanResult> Scan(absl::FunctionRef<bool(const IndexRecord&)> visit) override;
  absl::Status SaveRecency(std::span<const RecencyDelta> deltas) override;
  // Visits a snapshot, as Scan does.
  absl::Status ScanRecency(absl::FunctionRef<bool(const RecencyDelta&)> visit) override;
  absl::Status PutMeta(absl::string_view name, absl::string_view value) override;
  absl::Status EraseMeta(absl::string_view name) override;
  absl::StatusOr<std::optional<std::string>> GetMeta(absl::string_view name) override;
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ListMeta(
      absl::string_view prefix) override;
  uint64_t disk_bytes() const override;
  IndexStats stats() const override;

 private:
  struct State {
    std::map<std::string, std::string> records;
    std::map<std::string, std::string> meta;
    std::map<std::string, std::string> recency;
    StableMark mark;
  };
  using Changes = std::vector<std::pair<std::string, std::optional<std::string>>>;
  // One atomic write, as it stands in the log. No value: removed.
  struct Write {
    Changes records, meta, recency;
    std::optional<StableMark> mark;  // of a sync that lied
  };
  absl::Status ReadFault();
  static void Apply(const Write& write, State* state);
  static void Apply(const Changes& changes, std::map<std::string, std::string>* to);
  // Fails a call; `write` is the part of it that may be in the log.
  absl::Status Fail(absl::string_view what, Write write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status FailSync(const StableMark& mark) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes everything up to a hole stable.
  void SyncLog() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes some write since the last sync the first one that is lost.
  void MakeHole(SeededRandom& random, bool in_drive) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseHole() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next process opens it. Decides whether the cache has dropped what lies behind a hole.
  void Reopen(SeededRandom& random) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Append(Write write);

  mutable Mutex mu_;
  SeededRandom random_ ABSL_GUARDED_BY(mu_);
  Faults faults_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);
  std::optional<size_t> scan_fails_after_ ABSL_GUARDED_BY(mu_);
  bool log_damaged_ ABSL_GUARDED_BY(mu_) = false;
  State now_ ABSL_GUARDED_BY(mu_);               // what readers see
  State durable_ ABSL_GUARDED_BY(mu_);           // what a power cut leaves at least
  std::vector<Write> log_ ABSL_GUARDED_BY(mu_);  // from durable_ to now_
  // At this place of the log the drive has forgotten a write, or will when its power fails
  // (`hole_in_drive_`): nothing from there on becomes durable.
  std::optional<size_t> hole_ ABSL_GUARDED_BY(mu_);
  bool hole_in_drive_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Write> phantom_ ABSL_GUARDED_BY(mu_);  // failed, and may be behind the log
};

}  // namespace kvkeep
