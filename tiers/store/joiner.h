// Joiner: lets a device join while the store serves. The records of its index become chunks of the
// table. A start does this for each device that is there.
//
// One thread reads the index and adopts its records in batches. Each batch is a turn of the lock,
// and each slice of it a hold (section.h). Until all records are adopted, the device's chunks are
// misses and nothing is written there, so nothing of it is committed, freed or synced. What becomes
// of a record depends on its chunk, which may have changed meanwhile:
//
//   nobody knows the chunk          the chunk is stored, by this record
//   it was deleted meanwhile        the record is removed (missed_deletes.h)
//   it is in G2 alone               it is stored by this record, if the shape is the same; if the
//                                   shape differs, or the chunk is being written elsewhere, the
//                                   record is kept beside it (records.h)
//   it is stored on another device  if that record is doubtful and this one is sure, this one
//                                   becomes the chunk's, and that one is removed once this one is
//                                   stable; if that one is sure, this one is removed once that one
//                                   is stable and can be read; if both are doubtful, or both are
//                                   sure and of an earlier process, both are kept until a read
//                                   tells which is true (records.h)
//
// A join that fails leaves nothing behind: the device is away again, and may join later.
//
// Owned by Disk (disk.h). The store's lock protects the chunks. The joining thread owns an arrival.
#pragma once

#include <optional>

#include "tiers/store/chunks.h"
#include "tiers/store/committer.h"
#include "tiers/store/device_space.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/learned_state.h"
#include "tiers/store/leaver.h"
#include "tiers/store/records.h"
#include "tiers/store/reuse_meter.h"
#include "tiers/store/scrubber.h"
#include "tiers/store/sweeper.h"
#include "tiers/store/trimmer.h"

namespace kvkeep::store_internal {

class Joiner {
 public:
  // The objects that it works on. All are borrowed.
  struct Parts {
    Chunks* chunks;
    DeviceTiers* tiers;
    Records* records;
    DeviceSpace* space;
    Trimmer* trimmer;
    Committer* committer;
    LearnedState* learned;
    Leaver* leaver;
    Sweeper* sweeper;
    Scrubber* scrubber;
    EventHub* events;
    ReuseMeter* reuse;
  };
  Joiner(const StoreOptions& options, const StoreDeps& deps, Parts parts);

  // Joins all devices of StoreDeps. If one of them cannot be read, returns the error; none is here.
  absl::Status JoinAtStart();
  // As Store::Attach.
  void Attach(size_t device, const StoreDeps::DeviceDeps& deps, StatusCallback done);

 private:
  struct Arrival;
  struct MetRecord;
  enum class Becomes : uint8_t { kChunk, kKept, kNothing };

  absl::Status BeginJoin(DeviceTier& tier, const StoreDeps::DeviceDeps& deps);
  absl::Status Join(DeviceTier& tier);
  absl::StatusOr<Arrival> ReadRecords(DeviceTier& tier, bool at_start);
  void BeginAdopting(Arrival& arrival, bool damaged);
  // Returns false if the store drains, so nothing joins any more.
  bool AdoptBatch(Arrival& arrival);
  // Returns the chunk that is stored by this record now, if one is.
  std::optional<ChunkSlot> AdoptRecord(Arrival& arrival, const MetRecord& met) STORE_LOCKED;
  Becomes WhatBecomesOf(const ChunkId& id, const KnownRecord& record, ChunkSlot* slot)
      STORE_LOCKED;
  bool MayBeStoredToo(ChunkSlot slot, const KnownRecord& record) const STORE_LOCKED;
  void PrefetchInserts(const Arrival& arrival, size_t i) STORE_LOCKED;
  void InsertByAge(const Arrival& arrival);
  void Trim();
  void EndJoin(Arrival& arrival);
  void NoteDoubtful(DeviceTier& tier, Arrival& arrival) STORE_LOCKED;

  const StoreOptions& options_;  // as at the start
  const StoreDeps& deps_;
  Chunks& chunks_;
  DeviceTiers& tiers_;
  Records& records_;
  DeviceSpace& space_;
  Trimmer& trimmer_;
  Committer& committer_;
  LearnedState& learned_;
  Leaver& leaver_;
  Sweeper& sweeper_;
  Scrubber& scrubber_;
  EventHub& events_;
  ReuseMeter& reuse_;
};

}  // namespace kvkeep::store_internal
