// Core: what the store does with its chunks (chunks.h) in all tiers. Internal; the interface is
// store.h. Its methods are spread over files by flow: README.md says which.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/executor.h"
#include "tiers/policy/admission_policy.h"
#include "tiers/store/beyond.h"
#include "tiers/store/cipher_buffers.h"
#include "tiers/store/change.h"
#include "tiers/store/chunks.h"
#include "tiers/store/device_tier.h"
#include "tiers/store/event_hub.h"
#include "tiers/store/filler.h"
#include "tiers/store/image_verifier.h"
#include "tiers/store/leases.h"
#include "tiers/store/namespace_meters.h"
#include "tiers/store/owners.h"
#include "tiers/store/puts.h"
#include "tiers/store/recaller.h"
#include "tiers/store/remote_tier.h"
#include "tiers/store/reuse_meter.h"
#include "tiers/store/scrubber.h"
#include "tiers/store/section.h"
#include "tiers/store/session_table.h"
#include "tiers/store/shares.h"
#include "tiers/store/write_backs.h"

// Marks a method whose caller holds the lock.
#define LOCKED STORE_LOCKED

namespace kvkeep::store_internal {

class Core final : private ChunkHooks, private Filler::Host, private Recaller::Host {
 public:
  using MetadataCallback = absl::AnyInvocable<void(absl::StatusOr<std::string>) &&>;

  Core(const StoreOptions& options, const StoreDeps& deps);

  // ---- store.h, same contracts (join.cc, sessions.cc, lookup.cc, put.cc, read.cc, admin.cc)
  absl::Status Recover();
  void Attach(size_t device, const StoreDeps::DeviceDeps& deps, StatusCallback done);
  std::optional<DeviceState> StateOfAnswering(size_t device);
  void Detach(size_t device, StatusCallback done);
  // By number; null: the device is away. No entry changes while the caller holds telling().
  std::vector<NvmeDevice*> AttachedDevices();
  void NotComing(size_t device);
  Mutex* telling() { return &telling_mu_; }
  absl::StatusOr<SessionToken> OpenSession(const SessionInfo& info);
  void CloseSession(const SessionToken& token, bool revoked);
  absl::StatusOr<NamespaceDigest> OpenNamespace(const SessionToken& token,
                                                const NamespaceSpec& spec);
  absl::StatusOr<TenantId> TenantOf(const SessionToken& token);
  absl::StatusOr<NamespaceSpec> FindNamespace(const SessionToken& token, const NamespaceDigest& ns);
  uint32_t TokensPerChunk(const NamespaceDigest& ns);
  using SearchedCallback = absl::AnyInvocable<void() &&>;  // null: no search, whatever is missing
  std::optional<absl::StatusOr<LookupResult>> LookupOrSearch(
      const SessionToken& token, const LookupRequest& request, SearchedCallback searched);
  absl::Status Release(const SessionToken& token, LeaseId lease, uint32_t keep_keys);
  absl::StatusOr<uint64_t> Touch(const SessionToken& token, const ChunkSet& chunks);
  absl::Status ChargeDiscarded(const SessionToken& token, uint64_t bytes, bool within_rate);
  absl::StatusOr<PrefetchResult> Prefetch(const SessionToken& token, const ChunkSet& chunks);
  absl::StatusOr<uint64_t> Delete(const SessionToken& token, const ChunkSet& chunks);
  void WhenDeleted(bool durable, StatusCallback done);
  bool reaches_beyond() const { return deps_.remote != nullptr; }
  bool BeyondIsQuiet();
  using RecallCallback = absl::AnyInvocable<void(absl::StatusOr<uint64_t>) &&>;
  void Recall(const SessionToken& token, const ChunkSet& chunks, RecallCallback done);
  void AskBeyond(const SessionToken& token, const LookupRequest& request,
                 absl::AnyInvocable<void(bool) &&> asked);
  absl::StatusOr<ReadResult> Read(const SessionToken& token, const ChunkId& id, LeaseId lease,
                                  bool transient);
  absl::StatusOr<ReserveResult> Reserve(const SessionToken& token, const PutRequest& request);
  absl::StatusOr<SealOutcome> Seal(uint64_t reservation, const PutRequest& request);
  void AbortPut(uint64_t reservation);
  void WhenDurable(const ChunkId& id, StatusCallback done);
  void Unpin(ChunkSlot slot, bool lent);
  uint64_t Clear(const std::optional<NamespaceDigest>& ns);
  std::vector<NamespaceUse> Namespaces();
  absl::StatusOr<EvictResult> EvictSome(const EvictRequest& request);
  void ScrubRound(uint64_t bytes_per_second);
  void BeginDrain(bool write_remote);
  void SyncAll(StatusCallback done);
  bool Tick();
  StoreSnapshot Snapshot();
  std::vector<ForeignRead> TakeForeignReads();
  ReuseSnapshot Reuse() { return reuse_.snapshot(deps_.clock->Now()); }
  // For EventReader, which has a number here. Its events are those of a namespace that the session
  // has open, of a tenant, or of all tenants.
  absl::StatusOr<uint64_t> BeginEvents(const SessionToken& token, const NamespaceDigest& ns);
  uint64_t BeginAllEvents(std::optional<TenantId> tenant);
  void EndEvents(uint64_t reader);
  absl::StatusOr<EventBatch> NextEvents(uint64_t reader);
  void WhenMoreEvents(uint64_t reader, absl::AnyInvocable<void() &&> wake);
  void ReadMetadata(const ChunkId& id, MetadataCallback done);
  void CheckInvariants();

  StoreOptions options();
  absl::Status SetLimits(const StoreOptions& options);
  void AddMemory(const std::vector<Extent>& extents);
  Incarnation incarnation() const { return incarnation_; }
  Chunks& chunks() { return chunks_; }
  Filler& filler() { return filler_; }
  const StoreDeps& deps() const { return deps_; }

 private:
  // ---- core.cc
  void Count(uint32_t units) LOCKED { chunks_.Count(units); }
  bool Spent() const LOCKED { return chunks_.Spent(); }
  void Later(Hold::Task work) LOCKED { chunks_.Later(std::move(work)); }
  template <typename Callback, typename Answer>
  void CallLater(Callback callback, Answer answer) LOCKED {
    hold_.CallLater(std::move(callback), std::move(answer));
  }
  bool HasPool(TenantId tenant) const LOCKED { return chunks_.HasPool(tenant); }
  G2Pool& pool(TenantId tenant) LOCKED { return chunks_.pool(tenant); }
  G2Pool& pool(const Chunk& chunk) LOCKED { return chunks_.pool(chunk); }
  // ChunkHooks
  void Verify(ChunkSlot slot) LOCKED override;
  void OnDetached(Chunk& chunk, ChunkSlot slot) LOCKED override;
  void LeaveG3(Chunk& chunk, ChunkSlot slot) LOCKED override;
  void OnHomeless(ChunkSlot slot) LOCKED override;
  void OnChanged(Chunk& chunk) LOCKED override;
  void OnGone(const Chunk& chunk, ChunkSlot slot) LOCKED override;
  Fingerprint InsertIntoG3Policy(ChunkSlot slot, ChunkSlot parent, MonotonicTime now) LOCKED;
  // Chunks::Detach. The records that the chunk replaced go too, so that no restart finds those.
  void DetachChunk(ChunkSlot slot) LOCKED;
  // Has the index forget a record while its blocks stay whose they are.
  void RemoveRecord(DeviceTier& tier, const ChunkId& id) LOCKED;

  // ---- replace.cc
  // Detaches a chunk that is about to be put anew. Its record stays (replace.cc says why).
  void ReplaceChunk(ChunkSlot slot) LOCKED;
  // Keeps a record, whose blocks are taken, beside the chunk of its id. That chunk has another
  // record or none.
  void KeepBeneath(ChunkSlot slot, DeviceTier& tier, const ExtentList& extents,
                   const KnownRecord& record) LOCKED;
  // Its record, if another chunk's has overwritten that and is not on stable storage yet.
  std::optional<KnownRecord> OverwrittenRecord(const Chunk& chunk, ChunkSlot slot) const LOCKED;
  // StoreBy gives a record to a chunk that has none; TakeOff takes its record away. REQUIRES:
  // inside a Change of the chunk.
  void StoreBy(Chunk& chunk, DeviceTier& tier, ExtentList extents, const KnownRecord& record)
      LOCKED;
  ExtentList TakeOff(Chunk& chunk, ChunkSlot slot) LOCKED;
  // Lays the chunk's own record aside, as it is in doubt and the chunk is to be written anew.
  // False: the chunk has no record in doubt, is being read, or is not in G2.
  bool SetAside(ChunkSlot slot) LOCKED;
  void LayAside(Chunk& chunk, ChunkSlot slot) LOCKED;  // its record
  // A detached chunk is about to leave G3: keeps its record, if that was to stay (ReplaceChunk).
  bool KeepReplaced(Chunk& chunk, ChunkSlot slot) LOCKED;
  // The removal of a kept record that a new record overwrites. None: no record is kept there.
  std::optional<PendingRemove> TakeReplaced(const ReplacedAt& at) LOCKED;
  // The chunk is stored. Removes the records that it replaced, unless its add already has; those on
  // other devices once its own is sure and stable.
  void EndReplaced(const Chunk& chunk) LOCKED;
  // The batch with that removal failed: keeps the record again. False: it is to go by itself.
  bool RestoreReplaced(DeviceTier& tier, PendingRemove& remove) LOCKED;
  // Gives up one record that is kept on the device, of one tenant or of any. For when there is no
  // chunk to evict.
  Evicted EvictReplaced(DeviceTier& tier, std::optional<TenantId> tenant) LOCKED;
  // Frees extents that nothing refers to once `sequence` is stable.
  void FreeWhenStable(DeviceTier& tier, CommitSequence sequence, ExtentList extents) LOCKED;
  // Removes the records that a chunk replaced: it has gone, or is stable in G3 elsewhere.
  void ForgetReplaced(const ChunkId& id) LOCKED;
  void ForgetOne(const ReplacedAt& at, bool evicted = false) LOCKED;
  void DoubtTwice(ChunkSlot slot) LOCKED;  // queues it for the scrub, if it is DoubtedTwice
  // Neither the chunk's record nor one that is kept beside it is known to be the true one.
  bool DoubtedTwice(const Chunk& chunk) const LOCKED;
  // The chunk has left every tier: it gets a record back that it replaced, if one is kept and fits.
  void ReturnReplaced(ChunkSlot slot) LOCKED;
  // Detaches a damaged chunk. If another record of it is kept, that becomes the chunk.
  void LoseChunk(ChunkSlot slot) LOCKED;
  void BecomeReplaced(ChunkSlot slot, const ReplacedAt& at) LOCKED;

  // ---- sessions.cc
  void UnpinLeased(LeaseHolder& holder, const Lease::Entry& entry) LOCKED;
  void UnpinAll(Section& section, LeaseHolder& holder,
                const std::vector<Lease::Entry>& entries) LOCKED;

  // ---- lookup.cc
  void NoteMissed(const ChunkSet& deleted) LOCKED;
  bool InG3(const Chunk& chunk) const LOCKED;
  using Link = EvictionPolicy::ChainLink;
  struct LookupState;  // lookup_state.h
  std::chrono::nanoseconds PromotionTime(const LookupState& lookup) const LOCKED;
  // Notes which of the key's chunks are still to be read from G3. `found`: of its parts.
  void NoteToRead(std::span<const Link> found, LookupState& lookup) LOCKED;
  void FindSlice(LookupState& lookup, size_t begin, size_t end) LOCKED;
  void TellPolicies(TenantId tenant, LookupState& lookup, std::span<const Link> found,
                    EvictionPolicy::Slice slice) LOCKED;
  void TellDevices(TenantId tenant, LookupState& lookup, std::span<const Link> found,
                   MonotonicTime now, EvictionPolicy::Slice slice) LOCKED;
  void TellChains(Section&, TenantId, LookupState&) LOCKED;  // may yield
  void TellG2(TenantId tenant, LookupState& lookup, std::span<const Link> found, MonotonicTime now,
              EvictionPolicy::Slice slice) LOCKED;
  enum class Tells : uint8_t { kNobody, kG2, kAll };  // which policies of the request
  void FindAll(Section& section, TenantId tenant, LookupState& lookup, Tells tells) LOCKED;
  // Offers to G3 again what its admission has not wanted so far. May yield.
  void OfferAgain(Section& section, const LookupState& lookup) LOCKED;
  // Sees that the chunk is in G2 or on its way there. False: there is no space, as always for
  // Nobody's chunks; or the chunk went while this yielded. May yield. The parent is none, or pinned
  // by the caller. `tenant` owns the chunk.
  bool EnsureInG2(Section& section, const ReadQueue::Requester& requester, TenantId tenant,
                  ChunkSlot slot, ChunkSlot parent, bool transient) LOCKED;

  // ---- grant.cc
  struct Served;
  struct Grant;
  void CountServed(const Session* session, const NamespaceDigest& ns, const Served& served) LOCKED;
  bool PinForLease(Grant& grant, size_t i) LOCKED;
  // Takes the keys from that of entry `end` on out of the grant.
  void Shorten(Section& section, Grant& grant, size_t end) LOCKED;
  void PinWhatIsInG2(Section& section, Grant& grant) LOCKED;
  void BringTheRest(Section& section, TenantId tenant, Grant& grant) LOCKED;
  // Adds as many places as this hold may; yields when there are more.
  void AddPlaces(Section& section, const std::vector<Lease::Entry>& entries, size_t* next,
                 LookupResult& result) LOCKED;
  absl::StatusOr<bool> TellKnownLease(Section& section, const SessionToken& token, Grant& grant)
      LOCKED;
  absl::Status GrantLease(Section& section, const SessionToken& token, TenantId tenant,
                          Grant& grant) LOCKED;
  void File(Session& session, Grant& grant) LOCKED;

  // ---- put.cc
  // Forgets one chunk of the tenant's, for its entry in the table: of G3 if `of_g3`, else of G2.
  Evicted ForgetOne(TenantId tenant, bool of_g3) LOCKED;
  bool MakeRoomInTable(Section& section, TenantId tenant) LOCKED override;
  void Reject(ReserveResult& result, TenantId tenant, RejectReason reason, std::string message)
      LOCKED;
  // The put is answered without looking for space: PRESENT, or rejected.
  bool AnsweredAtOnce(const PutRequest& request, const NamespaceSpec& ns, TenantId tenant,
                      ReserveResult& result) LOCKED;
  // A put of this chunk would add nothing: the answer is PRESENT.
  bool Available(const Chunk& chunk, bool durable) const LOCKED;
  void BeginPut(const PendingPut& put, const PutRequest& request, Reservation* reservation) LOCKED;

  // ---- read.cc
  // Whether the reads under this lease of the session's were paid for when it was granted.
  absl::StatusOr<bool> IsPaid(const SessionToken& token, LeaseId lease) const LOCKED;
  absl::Status ChargeRead(Session& session, bool leased) LOCKED;
  void NoteWanted(const ChunkId& id) LOCKED;
  void CountRead(const SessionToken& token, TenantId tenant, const Chunk& chunk, Tier from) LOCKED;
  ChunkSlot FindInLease(Section&, const SessionToken&, LeaseId, const ChunkId&) LOCKED;
  // ---- filled.cc, sweep.cc; Filler::Host
  void OnReadEnded(ChunkSlot slot, LowerTier& from, std::optional<std::chrono::seconds> age)
      LOCKED override;
  void OnRead(Chunk& chunk, LowerTier& from) LOCKED override;
  void OnFilled(ChunkSlot slot, LowerTier* from) LOCKED override;
  bool IsReadAgain(const Chunk& chunk) LOCKED override;
  void OnSpoilt(ChunkSlot slot, bool stays) LOCKED override;
  void OnVerified(ChunkSlot slot) LOCKED override;
  void WriteBackIfUnbacked(ChunkSlot slot) LOCKED;
  void LeaveToNextUse(ChunkSlot slot) LOCKED;
  void LeaveToReaders(ChunkSlot slot) LOCKED;
  void DropBrokenAndSweep(Section& section) LOCKED;
  void SweepNext() LOCKED;

  // ---- scrub.cc
  void ScrubNext(Section& section) LOCKED;
  void ScrubChunk(Section& section, ChunkSlot slot) LOCKED;
  void OnScrubbed(ChunkSlot slot, const ChunkId& id, bool transient, const absl::Status& status);

  // ---- write_back.cc
  // `forced`: whatever the dirty budget and the admission say.
  void QueueWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent, bool forced) LOCKED;
  // The same without PumpWrites: returns the device to be pumped. Null: the chunk stays unbacked.
  DeviceTier* EnqueueWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent, bool forced)
      LOCKED;
  bool Admit(Chunk& chunk) LOCKED;
  void PumpWrites(DeviceTier& tier) LOCKED;
  bool MoveQueued(const WriteLane::Queued& queued) LOCKED;
  void StartWrite(ChunkSlot slot, const std::optional<ChunkKey>& parent) LOCKED;
  void SubmitWrite(ChunkSlot slot, WriteBack* write, const ExtentList& g2,
                   const ImagePlacement& placement);
  void SubmitEncrypted(ChunkSlot slot, WriteBack* write, const ExtentList& g2, ImageHeader header);
  void OnWritten(ChunkSlot slot, uint64_t bytes, absl::Status status);
  // `why` is Unavailable: the chunk is offered again later.
  void GiveUpWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent,
                       const absl::Status& why) LOCKED;
  void SetG3State(Chunk& chunk, G3State state) LOCKED;

  // ---- unbacked.cc
  void WaitUnbacked(ChunkSlot slot, ChunkSlot parent) LOCKED;
  void WaitAgain(ChunkSlot slot, const std::optional<ChunkKey>& parent) LOCKED;
  DeviceTier* EnqueueUnbacked(ChunkSlot slot) LOCKED;
  void PumpUnbacked(DeviceTier& tier) LOCKED;
  void CheckUnbacked() LOCKED;

  // ---- g3_space.cc
  // Whether there is space for the chunk, or a tenant that would give some.
  bool HasG3Room(DeviceTier& tier, const Chunk& chunk) LOCKED;
  DeviceTier* ChooseDevice(const Chunk& chunk, ChunkSlot parent) LOCKED;
  EvictionPolicy& g3_policy(const Chunk& chunk) LOCKED {
    return devices_[chunk.device]->policy(chunk.tenant);
  }
  Evicted EvictOneFromG3(DeviceTier& tier, TenantId from) LOCKED;
  // Evicts one chunk of the tenant that has to give (shares.h), so that `tenant` gets its blocks.
  Evicted EvictOneFor(DeviceTier& tier, TenantId tenant, uint64_t blocks) LOCKED;
  // Evicts the tenant's own chunks, on this device first, until its quota has room for so many
  // blocks. kNone: there is no room, whatever goes now. kLater: this hold has done its share.
  enum class Room : uint8_t { kMade, kNone, kLater };
  Room MakeRoomInQuota(DeviceTier& tier, TenantId tenant, uint64_t blocks) LOCKED;
  // Evicts until the device has its reserve of free blocks beside this chunk. False: not yet; this
  // hold has done its share.
  bool EnsureReserve(DeviceTier& tier, const Chunk& chunk) LOCKED;
  bool AllocateG3(DeviceTier& tier, Chunk& chunk, ChunkSlot parent) LOCKED;
  // REQUIRES: stored; inside a Change of this chunk.
  void RemoveFromG3(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason) LOCKED;
  // Evicts one chunk of a tenant above its quota. False: it is not above, or nothing can go.
  bool EvictOverQuota(DeviceTier& tier, TenantId tenant) LOCKED;
  // Evicts one chunk of a device above its capacity. False: it is not above, or nothing can go.
  bool EvictOverCapacity(DeviceTier& tier) LOCKED;
  void ShareG3() LOCKED;

  // ---- commit.cc
  void PumpIndex(DeviceTier& tier) LOCKED;
  bool MayBeClean(const DeviceTier& tier) const LOCKED;
  void BecomeUnclean(DeviceTier& tier) LOCKED;
  void OnCommitted(DeviceTier& tier, std::shared_ptr<CommitBatch> batch, absl::Status status);
  bool HasOtherRecord(const DeviceTier& tier, const ChunkId& id) const LOCKED;
  uint64_t GiveUpAdds(DeviceTier& tier, Section& section, const absl::Status& why) LOCKED;
  void RemoveUnsure(DeviceTier& tier, const PendingAdd& add) LOCKED;
  void OnAddCommitted(DeviceTier& tier, const PendingAdd& add) LOCKED;
  bool IsAtRest() const LOCKED;
  void StartSync(DeviceTier& tier) LOCKED;
  void WhenStable(DeviceTier& tier, StatusCallback done);
  // A pump has used up its hold: the tier's pumps all go on after it, each in holds of its own.
  void PumpLater(LowerTier& tier) LOCKED { chunks_.PumpLater(tier.pump); }
  void PumpDevice(DeviceTier& tier) LOCKED;
  void OnSynced(DeviceTier& tier, const StableMark& mark, bool doubt_saved, absl::Status status);
  void NoteFailedSync(DeviceTier& tier, const absl::Status& status) LOCKED;
  void OnSyncPutOff(DeviceTier& tier);
  void NoteIo(LowerTier& tier, bool write, const absl::Status& status) LOCKED override;

  // ---- join.cc
  struct Arrival;
  struct MetRecord;
  void MakeG3Policies(DeviceTier& tier) LOCKED;
  DeviceTier& TierOf(size_t device);  // stays where it is
  absl::Status BeginJoin(DeviceTier& tier, const StoreDeps::DeviceDeps& deps);
  absl::Status Join(DeviceTier& tier);
  absl::StatusOr<Arrival> ReadRecords(DeviceTier& tier, bool at_start);
  void BeginAdopting(Arrival& arrival, bool damaged);
  void ForgetOldestOfG2(Arrival& arrival) LOCKED;
  bool AdoptBatch(Arrival& arrival);  // false: the store drains, so nothing joins any more
  std::optional<ChunkSlot> AdoptRecord(Arrival& arrival, const MetRecord& met) LOCKED;
  enum class Becomes : uint8_t { kChunk, kKept, kNothing };
  Becomes WhatBecomesOf(const ChunkId& id, const KnownRecord& record, ChunkSlot* slot) LOCKED;
  bool Contest(const Chunk& chunk, const KnownRecord& record) const LOCKED;
  bool MayBeStoredToo(ChunkSlot slot, const KnownRecord& record) const LOCKED;
  void PrefetchInserts(const Arrival& arrival, size_t i) LOCKED;
  void InsertByAge(const Arrival& arrival);
  void EndJoin(Arrival& arrival);
  void Trim();
  void LetGo(DeviceTier& tier);
  void ForgetAll(Section& section, DeviceTier& tier) LOCKED;
  void Forget(ChunkSlot slot) LOCKED;
  void ForgetRecord(ChunkSlot slot) LOCKED;
  bool AnyComes() const LOCKED;
  // No device took the chunk. Waiters for its durability wait for a device that is coming; if none
  // is, they are told.
  void WaitForDevice(ChunkSlot slot) LOCKED;
  void WriteForWaiters(Section& section) LOCKED;
  bool AnyJoins() const LOCKED;
  void NoteDoubtful(DeviceTier& tier, Arrival& arrival) LOCKED;
  void EndDoubt(Chunk& chunk) LOCKED;

  // ---- recency.cc
  void SaveRecencyIfDue(Section& section, DeviceTier& tier) LOCKED;
  void SaveRecency(Section& section, DeviceTier& tier) LOCKED;
  struct RecencySave;
  void OnRecencySaved(DeviceTier& tier, const RecencySave& save);

  // ---- policy_state.cc
  void LoadLearned(DeviceTier& tier);  // of one that joins
  void SaveLearned(DeviceTier& tier) LOCKED;
  void OnLearnedSaved(DeviceTier& tier);

  // ---- recall.cc
  absl::Status MayAskBeyond(TenantId asks) LOCKED;
  bool SearchIfWorth(Section& section, const LookupRequest& request, const LookupState& lookup,
                     const RecallingPtr& recalling) LOCKED;

  // ---- leave.cc
  void LeaveIfQuiet(DeviceTier& tier) LOCKED;
  void Leave(DeviceTier& tier, StatusCallback has_left);

  // ---- confirm.cc
  void PumpConfirms(DeviceTier& tier) LOCKED;
  void OnConfirmRead(ConfirmQueue::Entry confirm, AlignedPage& page, absl::Status status);

  // ---- set_limits.cc
  static StoreOptions ResolveLimits(StoreOptions options, const StoreDeps& deps);
  // As Store::SetLimits says.
  absl::Status CheckCapacities(const StoreOptions& options) LOCKED;
  // A tenant's share of sessions, of the chunk table and of G3 is its share of G2. `quotas`: with
  // its quota of G3.
  static std::vector<Shares::Claim> ClaimsOf(const StoreOptions& options, bool quotas);
  // The tenant's part of the bytes that may be written to G3 in a second.
  double WriteRate(const StoreOptions& options, size_t tenant) const;
  G2Pool::Limits PoolLimits(const StoreOptions& options, size_t tenant) LOCKED;
  void LimitDevice(const StoreOptions& options, size_t device) LOCKED;
  // By TenantId. They have learned nothing yet.
  std::vector<std::unique_ptr<AdmissionPolicy>> MakeAdmissions(const StoreOptions& options);
  void SetTenantLimits(const StoreOptions& options) LOCKED;
  // Chunks that cannot go now go at a later Tick.
  void TrimToNewQuotas(Section& section) LOCKED;
  void TrimToNewCapacities(Section& section) LOCKED;

  // ---- operate.cc
  // False: the tenant has no chunk there that can go.
  bool EvictOneOf(Section& section, TenantId tenant, bool of_g3, EvictResult& result) LOCKED;

  // ---- metadata.cc
  // REQUIRES: InG3(chunk).
  void ReadTail(const Chunk& chunk, MetadataCallback done) LOCKED;

  // ---- admin.cc
  void CheckMarks() LOCKED;
  void CheckTold() LOCKED;
  // Adds the blocks of the records that are kept on each device.
  void CheckReplaced(std::vector<uint64_t>& g3_blocks) LOCKED;
  void CheckDevices(std::span<const uint64_t> g3_blocks, std::span<const uint64_t> stored) LOCKED;
  void CheckDoubt(const DeviceTier& tier) LOCKED;
  void CheckShares() LOCKED;

  // ---- recover_g2.cc
  struct RecoveredImage;
  void RecoverG2() LOCKED;
  // None: the marked block does not begin an image of this arena.
  std::optional<RecoveredImage> AdoptImage(BlockNumber block) LOCKED;
  void SnapshotTiers(StoreSnapshot& snapshot) LOCKED;
  void SnapshotSessions(Section& section, StoreSnapshot& snapshot,
                        std::vector<std::shared_ptr<const SessionInfo>>& infos) LOCKED;

  // ---- state: constant after construction
  const StoreOptions options_;  // of the start; options that may change are in limits_
  const StoreDeps deps_;
  const Incarnation incarnation_;
  const Owners owners_;
  std::vector<const DataKey*> write_keys_;  // by TenantId; null: no key ring
  const std::shared_ptr<CipherBuffers> cipher_buffers_ = std::make_shared<CipherBuffers>();

  // ---- state that has a lock of its own, or needs none
  Mutex telling_mu_;
  ReuseMeter reuse_;

  // ---- the chunks; references to their state, for the files of this class
  Chunks chunks_;
  const ImageVerifier verifier_;
  Filler filler_;
  Hold& hold_ STORE_GUARDED = chunks_.hold;
  ChunkTable& table_ STORE_GUARDED = chunks_.table;
  std::vector<std::unique_ptr<G2Pool>>& pools_ STORE_GUARDED = chunks_.pools;
  Shares& slot_shares_ STORE_GUARDED = chunks_.slot_shares;
  LiveMarks& marks_ STORE_GUARDED = chunks_.marks;
  LifeSamples& life_ STORE_GUARDED = chunks_.life;
  StoreCounters& counters_ STORE_GUARDED = chunks_.counters;
  std::vector<TenantCounters>& tenant_counters_ STORE_GUARDED = chunks_.tenant_counters;

  // ---- state: protected by the lock
  StoreOptions limits_ STORE_GUARDED;        // the options in effect
  bool over_quota_ STORE_GUARDED = false;    // somebody may hold more than a new quota
  bool over_capacity_ STORE_GUARDED = true;  // a tier may hold more than its capacity
  std::optional<MonotonicTime> last_tick_ STORE_GUARDED;
  Incarnations incarnations_ STORE_GUARDED;
  Shares g3_shares_ STORE_GUARDED;                             // of all devices, in blocks
  std::vector<std::unique_ptr<AdmissionPolicy>> admissions_ STORE_GUARDED;  // by TenantId
  std::vector<ChunkSlot> unverified_ STORE_GUARDED;  // swept from the back; may be gone
  ChunkSlot sweeping_ STORE_GUARDED = kNoSlot;
  uint64_t sweep_budget_bytes_ STORE_GUARDED = 0;  // until the next tick
  Scrubber scrubber_ STORE_GUARDED;
  std::vector<std::unique_ptr<DeviceTier>> devices_ STORE_GUARDED;
  SessionTable sessions_ STORE_GUARDED;
  LeaseBook leases_ STORE_GUARDED;
  Puts puts_ STORE_GUARDED;
  WriteBacks write_backs_ STORE_GUARDED;
  DurableWaiters durable_waiters_ STORE_GUARDED{&hold_};
  ReplacedRecords replaced_ STORE_GUARDED;
  bool wait_for_device_ STORE_GUARDED = false;  // some of durable_waiters_ do
  uint64_t moves_ STORE_GUARDED = 0;  // of chunks to other slots, of devices out
  bool draining_ STORE_GUARDED = false;
  Histogram write_back_age_ STORE_GUARDED{kAgeBounds};
  NamespaceMeters meters_ STORE_GUARDED;
  EventHub events_ STORE_GUARDED;

  // ---- null: nothing lies beyond the node
  const std::unique_ptr<RemoteTier> remote_ ABSL_PT_GUARDED_BY(store_lock);
  std::unique_ptr<Beyond> beyond_;      // set once, by the constructor
  std::unique_ptr<Recaller> recaller_;  // likewise
};

}  // namespace kvkeep::store_internal

#undef LOCKED
