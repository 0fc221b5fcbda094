// MemoryIndex: a ChunkIndex in a std::map that can lose what a real one may lose.
//
// It stands for the files of the index, so it outlives the store that uses it: a simulator keeps it
// over a Kill or a PowerCut and hands it to the next incarnation. It takes the same way through the
// record format as RocksDB, so that undecodable records can be planted.
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
    double commit_refused = 0;  // Unavailable, as in a stall; PutMeta too
    double commit_error = 0;    // DataLoss; PutMeta too
    double sync_error = 0;      // DataLoss; nothing became durable for certain
    double sync_lies = 0;       // OK; nothing became durable
    double read_error = 0;      // DataLoss; of ReadStableMark, Scan, GetMeta, ListMeta
  };
  struct Stats {
    uint64_t commits = 0, refused = 0, errors = 0, syncs = 0, lies = 0;
    uint64_t lost_writes = 0;  // by power cuts
  };

  explicit MemoryIndex(uint64_t seed = 1) : random_(seed) {}

  void SetFaults(const Faults& faults);
  // The process died: all committed writes are kept, and faults end.
  void Kill();
  // The machine died: of the writes since the last good Sync only a random beginning is kept (the
  // log is written in order). Faults end.
  void PowerCut(uint64_t seed);
  // Damages the stored record, so that Scan counts it as undecodable. REQUIRES: it is stored.
  void DamageRecord(const ChunkId& id);
  size_t unsynced_writes() const;
  std::optional<IndexRecord> Find(const ChunkId& id) const;  // as Scan would visit it
  void Reseed(uint64_t seed);                                // as if made with it
  Stats counted() const;

  absl::Status Commit(const IndexBatch& batch) override;
  absl::Status Sync(const StableMark& mark) override;
  absl::StatusOr<StableMark> ReadStableMark() override;
  // Visits a snapshot, without the lock: `visit` may call back into the index.
  absl::StatusOr<ScanResult> Scan(absl::FunctionRef<bool(const IndexRecord&)> visit) override;
  absl::Status PutMeta(absl::string_view name, absl::string_view value) override;
  absl::StatusOr<std::optional<std::string>> GetMeta(absl::string_view name) override;
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ListMeta(
      absl::string_view prefix) override;
  uint64_t disk_bytes() const override;

 private:
  struct State {
    std::map<std::string, std::string> records;
    std::map<std::string, std::string> meta;
    StableMark mark;
  };
  // One atomic write, as it stands in the log. No value: removed.
  struct Write {
    std::vector<std::pair<std::string, std::optional<std::string>>> records;
    std::vector<std::pair<std::string, std::string>> meta;
    std::optional<StableMark> mark;  // of a sync that lied
  };
  absl::Status ReadFault();
  static void Apply(const Write& write, State* state);
  absl::Status Append(Write write);

  mutable Mutex mu_;
  SeededRandom random_ ABSL_GUARDED_BY(mu_);
  Faults faults_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);
  State now_ ABSL_GUARDED_BY(mu_);               // what readers see
  State durable_ ABSL_GUARDED_BY(mu_);           // what a power cut leaves at least
  std::vector<Write> log_ ABSL_GUARDED_BY(mu_);  // from durable_ to now_
};

}  // namespace kvkeep
