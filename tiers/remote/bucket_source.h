// BucketSource: RemoteSource over an object store, one object an image. Names, seals and MACs are
// keyed by the fleet: an object counts once it is proven to be this fleet's image of this chunk, of
// this size. The reader checks the payload, piece by piece.
//
// Find reads header pages (a HEAD could not tell an absent object from a wrong bucket, nor a
// shape). It asks for each of up to 32 keys; among more keys it searches for a prefix
// (prefix_search.h): the highest part of a key stands for the key and those before it. A chunk that
// was not asked for itself is taken to have the shape of the next one that was; a read finds out.
// An absent chunk is taken to be absent for a while (presence.h): if a prefix is known to be
// absent, only its first key is asked for. If a question is not answered in time, the search ends
// with what it knows.
//
// probes_per_second limits the questions; each tenant may always ask its share of them. A question
// over the limit is not asked, and the search ends with what it knows; only the first question of a
// search is always asked.
//
// Read asks for the whole image at once, or above `whole_up_to` for parts of about the same size,
// all of the version that the first part is of. While `whole_beside` others are read it is whole at
// any size: they keep the connections busy. An object that is proven to be cut off, or another
// chunk's, is removed, else it would stand in the way of its own repair. header_done tells that an
// object is absent before any piece ends.
//
// Age reads the header page, so that a bad object counts as none. It computes an object's age from
// its last modification and the store's clock, or this machine's where the store tells no time.
//
// Write checksums the image inside the call (0.1 to 0.3 ms a MiB) and refuses nothing while the
// source is writable().
//
// Thread-safe. No lock is held over a call of the store's or a callback. The destructor has
// answered all when it returns.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"
#include "tiers/base/random.h"
#include "tiers/base/tenant_tag.h"
#include "tiers/objects/object_store.h"
#include "tiers/remote/ask_limits.h"
#include "tiers/remote/fleet_epoch.h"
#include "tiers/remote/fleet_keys.h"
#include "tiers/remote/presence.h"
#include "tiers/remote/prefix_search.h"
#include "tiers/remote/remote_source.h"

namespace kvkeep {

struct BucketSourceOptions {
  uint64_t epoch = 0;  // g4.epoch
  // Nothing is readable or writable while it is not certain. Outlives the source. Null: there is
  // one epoch.
  const FleetEpoch* begun = nullptr;
  PrefixSearchOptions search;
  std::chrono::milliseconds find_within{1000}, read_within{30'000}, write_within{60'000},
      remove_within{10'000}, check_within{10'000};
  size_t probes_at_once = 64;
  uint64_t probes_per_second = 0;  // 0: no limit
  size_t presence_entries = 1 << 20;           // 16 bytes each
  std::chrono::milliseconds absent_for{10'000};  // an absent chunk is taken to be so
  uint64_t whole_up_to = 12 * kMiB, part_bytes = 8 * kMiB;  // about that
  uint32_t parts_at_once = 4;                               // of one image
  uint32_t whole_beside = 4;
  uint64_t writes_in_flight = 64 * kMiB;  // beyond that it is not writable
};

struct BucketSourceCounters {
  uint64_t searches = 0, search_rounds = 0, believed_chunks = 0;
  uint64_t probes = 0, probes_found = 0, probes_absent = 0, probes_failed = 0;
  uint64_t probes_late = 0;   // never sent
  uint64_t probes_declined = 0;  // over the rate
  uint64_t known_absent = 0;  // keys that were not asked for: they were absent a while ago
  uint64_t reads = 0, failed_reads = 0, read_bytes = 0;
  uint64_t writes = 0, failed_writes = 0, written_bytes = 0, already_there = 0;
  uint64_t replacing_writes = 0;  // of those: replaced whatever was there
  uint64_t removes = 0, failed_removes = 0;
  // Bad objects by reason, and how many of them were removed.
  uint64_t bad_seal = 0, bad_header = 0, bad_identity = 0, bad_size = 0, bad_plain = 0;
  uint64_t removed_bad = 0;
  uint64_t replaced = 0;     // reads of an object that was replaced meanwhile
  uint64_t no_versions = 0;  // reads in parts, where the store names no version
};

class BucketSource final : public RemoteSource {
 public:
  // `clock` and `random` outlive this.
  BucketSource(const BucketSourceOptions& options, FleetKeys keys,
               std::unique_ptr<ObjectStore> store, Clock* clock, RandomSource* random);
  // The same with a store that others ask, too, within `limits`. The store must be destroyed, with
  // all answers told, before this.
  BucketSource(const BucketSourceOptions& options, FleetKeys keys, ObjectStore* store,
               std::shared_ptr<AskLimits> limits, Clock* clock, RandomSource* random);
  ~BucketSource() override;

  // REQUIRES: some ids.
  void Find(std::vector<ChunkId> ids, Wanted wanted, MonotonicTime deadline,
            std::function<void(Found)> done) override;
  void Age(const ChunkId& id,
           std::function<void(absl::StatusOr<std::chrono::seconds>)> done) override;
  void Read(ReadRequest request) override;
  void Write(WriteRequest request) override;
  void Remove(const ChunkId& id, std::function<void(absl::Status)> done) override;
  uint64_t epoch() const override {
    return options_.begun == nullptr ? 0 : options_.begun->number();
  }
  bool readable() const override;
  bool writable() const override;
  bool may_find(const NamespaceDigest& ns) const override {
    return limits_->may_find(TenantTagOf(ns), clock_.Now());
  }
  bool may_ask_age() const override { return limits_->may_ask_age(clock_.Now()); }
  bool TakeQuestion(const NamespaceDigest& ns) override {
    return may_ask_age() && limits_->TakeProbes(TenantTagOf(ns), 1, 1, clock_.Now()) == 1;
  }
  const Uuid& place() const override { return keys_.id; }
  const MacKey& mac_key() const override { return keys_.mac; }

  // Asks for the header page of an object that is not there. kAbsent: the store serves.
  void Check(std::function<void(const ObjectAnswer&)> done);
  ObjectStoreHealth health() const { return objects_.health(); }
  void SetProbesPerSecond(uint64_t probes) { limits_->SetProbesPerSecond(probes); }
  BucketSourceCounters counters() const;

 private:
  struct Finding;
  struct HeaderProbe;
  struct Probe;
  struct Reading;   // image_reading.h
  class PartSink;

  std::string NameOf(const ChunkId& id) const;  // in the present epoch
  std::string NameOf(const ChunkId& id, uint64_t epoch) const;
  MonotonicTime After(std::chrono::milliseconds time) const { return clock_.Now() + time; }

  // `in_find`: inside the call of Find, where nothing may end.
  void StartRound(const std::shared_ptr<Finding>& finding, bool in_find);
  // Returns whether there is something to wait for in this round.
  bool AskRound(const std::shared_ptr<Finding>& finding, const std::vector<size_t>& round,
                bool in_find);
  void EndFinding(Finding& finding);
  void PumpProbes();
  void OnProbed(const std::shared_ptr<Probe>& probe, const ObjectAnswer& answer);
  // The result of a question. No shape: the chunk is not there, or is proven wrong.
  struct Probed {
    bool answered = false;
    std::optional<ImageShape> shape;
  };
  Probed CheckProbe(const ChunkId& id, HeaderProbe& probe, const ObjectAnswer& answer);
  std::optional<std::chrono::seconds> AgeOf(const ObjectHead& head) const;
  void RemoveBad(const ChunkId& id);

  uint64_t PartBytes(uint64_t image_bytes) const;
  void StartParts(const std::shared_ptr<Reading>& reading);
  void StartPart(const std::shared_ptr<Reading>& reading, uint64_t first);
  void OnPart(const std::shared_ptr<Reading>& reading, PartSink& sink,
              const ObjectAnswer& answer);
  void Count(uint64_t BucketSourceCounters::*counter, uint64_t by = 1);
  void NoteAbsent(const ChunkId& id);

  const BucketSourceOptions options_;
  const FleetKeys keys_;
  Clock& clock_;
  RandomSource& random_;
  const std::shared_ptr<AskLimits> limits_;
  std::atomic<uint64_t> writing_bytes_{0};

  mutable Mutex mu_;
  BucketSourceCounters counters_ ABSL_GUARDED_BY(mu_);
  Presence presence_ ABSL_GUARDED_BY(mu_);  // of what is absent
  // Probes that wait for their turn: a search, and which of its keys. The callers bound their
  // number.
  std::deque<std::pair<std::shared_ptr<Finding>, size_t>> probes_ ABSL_GUARDED_BY(mu_);
  size_t probing_ ABSL_GUARDED_BY(mu_) = 0;

  ObjectStore& objects_;
  std::unique_ptr<ObjectStore> store_;  // the same, if this owns it; last: it answers into the rest
};

}  // namespace kvkeep
