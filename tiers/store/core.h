// Core: the one state machine behind the store's mutex. Internal; the interface is store.h.
//
// Its methods are spread over files by flow: core.cc (lock, chunk lifetime, G2 space), sessions.cc,
// lookup.cc, put.cc, promote.cc, decrypt.cc, verify.cc, write_back.cc, unbacked.cc, g3_space.cc,
// commit.cc (index and sync), replace.cc, join.cc, confirm.cc, recover_g2.cc, learned.cc, scrub.cc,
// leave.cc, set_limits.cc, operate.cc, admin.cc, events.cc, metadata.cc.
//
// How the lock is used: every entry opens a Section. Work for the outside (device I/O, executor
// tasks, callers' callbacks) goes into the hold (hold.h) with Later() and runs on the same thread
// right after the Section has unlocked. Any change to a chunk that may alter what can be evicted,
// or end its life, is wrapped in a Change, which settles the accounts when it ends: after that the
// chunk may be gone.
#pragma once

#include <memory>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/policy/admission_policy.h"
#include "tiers/store/cipher_buffers.h"
#include "tiers/store/device_tier.h"
#include "tiers/store/dirty_chunks.h"
#include "tiers/store/event_hub.h"
#include "tiers/store/hold.h"
#include "tiers/store/leases.h"
#include "tiers/store/life_samples.h"
#include "tiers/store/live_marks.h"
#include "tiers/store/namespace_meters.h"
#include "tiers/store/owners.h"
#include "tiers/store/puts.h"
#include "tiers/store/reuse_meter.h"
#include "tiers/store/scrubber.h"
#include "tiers/store/session_table.h"
#include "tiers/store/shares.h"
#include "tiers/store/state.h"
#include "tiers/store/work.h"

namespace kvkeep::store_internal {

class Core final : private ReadSink {
 public:
  using MetadataCallback = absl::AnyInvocable<void(absl::StatusOr<std::string>) &&>;

  Core(const StoreOptions& options, const StoreDeps& deps);
  ~Core();

  class Section;  // section.h

  // ---- store.h, same contracts (join.cc, sessions.cc, lookup.cc, put.cc, promote.cc, admin.cc)
  absl::Status Recover();
  void Attach(size_t device, const StoreDeps::DeviceDeps& deps, StatusCallback done);
  std::optional<DeviceState> StateOfAnswering(size_t device);
  void Detach(size_t device, StatusCallback done);
  // Null: away. They stay what they are while the caller holds telling().
  std::vector<NvmeDevice*> AttachedDevices();
  void NotComing(size_t device);
  Mutex* telling() { return &telling_mu_; }
  absl::StatusOr<SessionToken> OpenSession(const SessionInfo& info);
  void CloseSession(const SessionToken& token, bool revoked);
  absl::StatusOr<NamespaceDigest> OpenNamespace(const SessionToken& token,
                                                const NamespaceSpec& spec);
  absl::StatusOr<TenantId> TenantOf(const SessionToken& token);
  absl::StatusOr<NamespaceSpec> FindNamespace(const SessionToken& token, const NamespaceDigest& ns);
  absl::StatusOr<LookupResult> Lookup(const SessionToken& token, const LookupRequest& request);
  absl::Status Release(const SessionToken& token, LeaseId lease, uint32_t keep_keys);
  absl::StatusOr<uint64_t> Touch(const SessionToken& token, const ChunkSet& chunks);
  absl::Status ChargeDiscarded(const SessionToken& token, uint64_t bytes, bool within_rate);
  absl::StatusOr<PrefetchResult> Prefetch(const SessionToken& token, const ChunkSet& chunks);
  absl::StatusOr<uint64_t> Delete(const SessionToken& token, const ChunkSet& chunks);
  absl::StatusOr<ReadResult> Read(const SessionToken& token, const ChunkId& id, LeaseId lease,
                                  bool transient);
  absl::StatusOr<ReserveResult> Reserve(const SessionToken& token, const PutRequest& request);
  absl::StatusOr<SealOutcome> Seal(uint64_t reservation, const PutRequest& request);
  void AbortPut(uint64_t reservation);
  void WhenDurable(const ChunkId& id, StatusCallback done);
  void WhenReady(ChunkSlot slot, size_t first, size_t count, StatusCallback ready);
  std::vector<uint64_t> PieceChecksums(ChunkSlot slot, const ExtentList& extents);
  void Unpin(ChunkSlot slot, bool lent);
  uint64_t Clear(const std::optional<NamespaceDigest>& ns);
  std::vector<NamespaceUse> Namespaces();
  absl::StatusOr<EvictResult> EvictSome(const EvictRequest& request);
  void ScrubRound(uint64_t bytes_per_second);
  void BeginDrain();
  void SyncAll(StatusCallback done);
  bool Tick();
  StoreSnapshot Snapshot();
  std::vector<ForeignRead> TakeForeignReads();
  ReuseSnapshot Reuse() { return reuse_.snapshot(deps_.clock->Now()); }
  uint64_t TakeLongestHoldNs();
  // For EventReader, by number: of a namespace that the session has open, of a tenant, of all.
  absl::StatusOr<uint64_t> BeginEvents(const SessionToken& token, const NamespaceDigest& ns);
  uint64_t BeginAllEvents(std::optional<TenantId> tenant);
  void EndEvents(uint64_t reader);
  absl::StatusOr<EventBatch> NextEvents(uint64_t reader);
  void WhenMoreEvents(uint64_t reader, absl::AnyInvocable<void() &&> wake);
  void ReadMetadata(const ChunkId& id, MetadataCallback done);
  void CheckInvariants();

  StoreOptions options();
  absl::Status SetLimits(const StoreOptions& options);
  Incarnation incarnation() const { return incarnation_; }
  // Contiguous memory of an image in G2, from `offset`, at most `bytes`.
  std::span<std::byte> ImageMemory(const ExtentList& extents, uint64_t offset,
                                   uint64_t bytes) const;
  HeaderPage HeaderInArena(const ExtentList& extents) const;
  ImagePlacement G2Placement(Generation generation, const ExtentList& extents) const;
  const StoreDeps& deps() const { return deps_; }

 private:
  friend class Section;

  // Scope around changes to one chunk; see the head of this file.
  class Change {
   public:
    Change(Core* core, ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core->mu_);
    ~Change();
    Chunk& operator*() const { return chunk_; }
    Chunk* operator->() const { return &chunk_; }

   private:
    Core* const core_;
    const ChunkSlot slot_;
    Chunk& chunk_;
    const bool was_evictable_;
  };

  // ---- core.cc
  // As Hold's.
  void Count(uint32_t units) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { hold_.Count(units); }
  bool Spent() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return hold_.Spent(); }
  void Later(Hold::Task work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { hold_.Later(std::move(work)); }
  void CallLater(StatusCallback callback, absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    hold_.CallLater(std::move(callback), std::move(status));
  }
  void NoteHold(uint64_t held_ns, uint64_t worked_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The memory is due: touched without the lock, before anybody needs it. In a recovery that is by
  // another thread, as the lock is held until its end.
  void TouchLater(std::span<std::byte> memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static bool EvictableFromG2(const Chunk& chunk);
  // Its bytes in G2: by readers, a write-back, or a promotion that writes them.
  static bool InUse(const Chunk& chunk) {
    return chunk.pins > 0 || chunk.dirty() || chunk.being_read();
  }
  void Settle(ChunkSlot slot, bool was_evictable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Pin(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UnpinLocked(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void InsertIntoG2Policy(ChunkSlot slot, ChunkSlot parent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void InsertIntoG3Policy(ChunkSlot slot, ChunkSlot parent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteGone(const Chunk& chunk, LifeSamples::Where where, EvictionPolicy::EraseReason reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FreeG2Copy(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Nobody (shares.h) has none: what a tenant left that is no more is in G3 alone.
  bool HasPool(TenantId tenant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return tenant.value() < pools_.size();
  }
  G2Pool& pool(TenantId tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    KVKEEP_CHECK(HasPool(tenant));
    return *pools_[tenant.value()];
  }
  G2Pool& pool(const Chunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return pool(chunk.tenant); }
  TenantId OwnerOf(const NamespaceDigest& ns) const { return owners_.OwnerOf(ns); }
  // As ChunkTable::Create; the chunk is its namespace's owner's.
  ChunkSlot CreateChunk(const ChunkId& id, const ImageShape& shape)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Space in the tenant's pool, made by eviction where need be. May yield.
  std::optional<ExtentList> AllocateG2(Section& section, TenantId tenant, uint64_t blocks,
                                       ChunkSlot parent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // kSpent: not yet, this hold has done its share.
  enum class Evicted : uint8_t { kOne, kNone, kSpent };
  Evicted EvictOneFromG2(G2Pool& pool) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the slot, which was this chunk's before a yield, still is, findable as such.
  bool StillIs(ChunkSlot slot, const ChunkId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Not found any more, from here on; nor is what it replaced after a restart.
  void DetachChunk(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DetachOnly(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- replace.cc
  // DetachChunk, to put it anew: its record stays, see replace.cc.
  void ReplaceChunk(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A record whose blocks are taken, beneath the chunk of that name, which has another one or none.
  void KeepBeneath(ChunkSlot slot, uint16_t device, const ExtentList& extents,
                   const KnownRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The chunk, which has none, gets a record; loses it. REQUIRES: inside a Change of it.
  void StoreBy(Chunk& chunk, uint16_t device, ExtentList extents, const KnownRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ExtentList TakeOff(Chunk& chunk, ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The chunk's own, which is in doubt: it is written anew. False: it is being read.
  bool SetAside(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LayAside(Chunk& chunk, ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // its record
  // What is left of a chunk of G3 that is about to go from there. False: no record that stays.
  bool KeepReplaced(Chunk& chunk, ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds the removal of what an add is about to overwrite. False: of no record that stays.
  bool TakeReplaced(uint16_t device, const ChunkId& id,
                    std::deque<DeviceTier::PendingRemove>& removes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The chunk is stored, and sure. What it replaced goes, if that could not with its add.
  void EndReplaced(const Chunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The batch with that was refused. False: the record is to go by itself.
  bool RestoreReplaced(uint16_t device, DeviceTier::PendingRemove& remove)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One that is kept on the device, of a tenant or of any: there is nothing else to evict.
  Evicted EvictReplaced(DeviceTier& tier, std::optional<TenantId> tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Frees what nothing refers to once `sequence` is stable.
  void FreeWhenStable(uint16_t device, CommitSequence sequence, ExtentList extents)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The chunk that replaced it has gone, or is in G3 elsewhere: the record goes by itself.
  void ForgetReplaced(const ChunkId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetOne(const ReplacedAt& at, bool evicted = false) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DoubtTwice(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // if so: for the scrub
  // The chunk, which is in no tier any more, is what it replaced again, if that can be.
  void ReturnReplaced(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // DetachChunk, as it is damaged: another record of it, if there is one, is the chunk now.
  void LoseChunk(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BecomeReplaced(ChunkSlot slot, const ReplacedAt& at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- sessions.cc
  void UnpinLeased(Lessee& holder, const Lease::Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UnpinAll(Section& section, Lessee& holder, const std::vector<Lease::Entry>& entries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- lookup.cc
  void NoteMissed(const ChunkSet& deleted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool ReadableNow(const Chunk& chunk) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool InG3(const Chunk& chunk) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  using Link = EvictionPolicy::ChainLink;
  struct Wanted;  // wanted.h
  std::chrono::nanoseconds PromotionTime(const Wanted& wanted) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What of the key's chunks is still to be read. `found`: of its parts.
  void NoteToRead(std::span<const Link> found, Wanted& wanted) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FindSlice(Wanted& wanted, size_t begin, size_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellPolicies(TenantId tenant, Wanted& wanted, std::span<const Link> found, bool continued)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellChains(Section&, TenantId, Wanted&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // may yield
  void FindAll(Section& section, TenantId tenant, Wanted& wanted, bool touch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // To G3, what its admission did not want so far. May yield.
  void OfferAgain(Section& section, const Wanted& wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Brings the chunk's bytes into G2, or on the way there. False when there is no space, as there
  // never is for nobody's. May yield: then the chunk may be gone, with the answer false. The parent
  // is none, or pinned by the caller. `tenant` is whose the chunk is.
  bool EnsureInG2(Section& section, const ReadQueue::Asker& asker, TenantId tenant, ChunkSlot slot,
                  ChunkSlot parent, bool transient) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- grant.cc
  struct Served;
  struct Grant;
  void CountServed(const Session* session, const NamespaceDigest& ns, const Served& served)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool PinForLease(Grant& grant, size_t i) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives up the keys from that of entry `end` on.
  void Shorten(Section& section, Grant& grant, size_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PinWhatIsInG2(Section& section, Grant& grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BringTheRest(Section& section, TenantId tenant, Grant& grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // As many as this hold may do; yields when that was not all.
  void AddPlaces(Section& section, const std::vector<Lease::Entry>& entries, size_t* next,
                 LookupResult& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<bool> TellKnownLease(Section& section, const SessionToken& token, Grant& grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status GrantLease(Section& section, const SessionToken& token, TenantId tenant,
                          Grant& grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void File(Session& session, Grant& grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- put.cc
  // Forgets one chunk of the tenant's: of G3 while `of_g3`, else of G2.
  Evicted ForgetOne(TenantId tenant, bool of_g3) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MakeRoomInTable(Section& section, TenantId tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Reject(ReserveResult& result, TenantId tenant, RejectReason reason, std::string message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Present, or refused: no space is to be looked for.
  bool AnsweredAtOnce(const PutRequest& request, const NamespaceSpec& ns, TenantId tenant,
                      ReserveResult& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A put of it has nothing to add.
  bool Available(const Chunk& chunk, bool durable) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BeginPut(const PendingPut& put, const PutRequest& request, Reservation* reservation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TableFull() const;

  // ---- promote.cc
  // Whether the lease, if it is one of the session's, was paid for when it was granted.
  absl::StatusOr<bool> IsPaid(const SessionToken& token, LeaseId lease) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ChargeRead(Session& session, bool leased) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteWanted(const ChunkId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountRead(const SessionToken& token, TenantId tenant, const Chunk& chunk, bool from_g3)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ChunkSlot FindInLease(Section& section, const SessionToken& token, LeaseId lease,
                        const ChunkId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartPromotion(LowerTier& from, const ReadQueue::Asker& asker, ChunkSlot slot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PumpReads(LowerTier& from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BeginReads(LowerTier& from, ChunkSlot slot, Promotion& promotion)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnHeaderRead(ChunkSlot slot, HeaderPage page, absl::Status status) override;
  void OnPieceRead(ChunkSlot slot, size_t piece, uint64_t bytes, absl::Status status) override;
  void VerifyWhatIsRead(ChunkSlot slot, Promotion& promotion) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void VerifyIfRead(ChunkSlot slot, Promotion& promotion, size_t piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasChecksum(const ExtentList& extents, uint64_t at, uint64_t bytes, uint64_t wanted) const;
  absl::Status VerifyPiece(const ImageIdentity& identity, const ExtentList& extents,
                           size_t piece) const;
  void OnPiecesVerified(ChunkSlot slot, Promotion::Pieces pieces, absl::Status status);
  void Tell(PieceWaiters::Callbacks told, absl::Status with) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LowerTier& EndReading(ChunkSlot slot, bool good) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishPromotion(ChunkSlot slot, Generation generation);
  void EndIfFailed(ChunkSlot slot, Promotion& promotion) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- decrypt.cc
  // Null: not in the ring, or there is no ring.
  const DataKey* KeyOf(const ImageEncryption& encryption) const;
  // The header's checksums become plaintext. NotFound without its key; Unauthenticated.
  absl::StatusOr<std::unique_ptr<ImageCipher>> OpenHeader(ImageHeader* header) const;
  absl::Status DecryptUnit(const ImageCipher& cipher, const ImageHeader& header,
                           const ExtentList& extents, size_t unit) const;
  // Pieces [first, end); of an encrypted image those of one unit, decrypted first.
  absl::Status VerifyPieces(const Promotion& promotion, const ExtentList& extents,
                            Promotion::Pieces pieces) const;
  void CountFailure(const Promotion& promotion) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- verify.cc
  void StartVerification(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnArenaHeaderRead(ChunkSlot slot, absl::StatusOr<ImageHeader> header);
  void FinishVerification(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndFailedVerification(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LeaveToReaders(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropBrokenAndSweep(Section& section) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SweepNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SweepOn(ChunkSlot ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- scrub.cc
  void ScrubNext(Section& section) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ScrubChunk(Section& section, ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnScrubbed(ChunkSlot slot, const ChunkId& id, bool transient, const absl::Status& status);

  // ---- write_back.cc
  // Forced: whatever the dirty budget and the admission say.
  void QueueWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent, bool forced)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // That, but for the pump of the device, which it returns; nothing when the chunk stays unbacked.
  std::optional<uint16_t> EnqueueWriteBack(ChunkSlot slot, const std::optional<ChunkKey>& parent,
                                           bool forced) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Admit(Chunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PumpWrites(uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ChunkSlot FindParent(const Chunk& chunk, const std::optional<ChunkKey>& parent) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartWrite(ChunkSlot slot, const std::optional<ChunkKey>& parent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SubmitWrite(ChunkSlot slot, WriteBack* write, const ExtentList& g2,
                   const ImagePlacement& placement);
  void SubmitEncrypted(ChunkSlot slot, WriteBack* write, const ExtentList& g2, ImageHeader header);
  void OnWritten(ChunkSlot slot, uint64_t bytes, absl::Status status);
  // Unavailable: it is offered again later.
  void GiveUpWriteBack(ChunkSlot slot, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetG3State(Chunk& chunk, G3State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- unbacked.cc
  void WaitUnbacked(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WaitAgain(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndUnbackedWait(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<uint16_t> EnqueueUnbacked(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PumpUnbacked(uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteUnbacked(Chunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckUnbacked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- g3_space.cc
  // Whether there is space for the chunk, or somebody would give it some.
  bool HasG3Room(DeviceTier& tier, const Chunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<uint16_t> ChooseDevice(const Chunk& chunk, ChunkSlot parent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgiveDevicesBehind() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  EvictionPolicy& g3_policy(const Chunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return devices_[chunk.device]->policy(chunk.tenant);
  }
  Evicted EvictOneFromG3(DeviceTier& tier, TenantId from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One of whoever has to give so that the tenant gets so many blocks.
  Evicted EvictOneFor(DeviceTier& tier, TenantId tenant, uint64_t blocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The tenant gives its own, on this device first, until it may hold so many blocks more. kNone:
  // it may not, whatever it gives now. kLater: this hold has done its share.
  enum class Room : uint8_t { kMade, kNone, kLater };
  Room MakeRoomInQuota(DeviceTier& tier, TenantId tenant, uint64_t blocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False: not yet, this hold has done its share.
  bool EnsureReserve(DeviceTier& tier, const Chunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AllocateG3(DeviceTier& tier, Chunk& chunk, ChunkSlot parent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // REQUIRES: stored; inside a Change of this chunk.
  void RemoveFromG3(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One chunk of a tenant that holds more than its quota. False: it does not, or nothing can go.
  bool EvictOverQuota(DeviceTier& tier, TenantId tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One chunk of a device that holds more than it may. False: it does not, or nothing can go.
  bool EvictOverCapacity(DeviceTier& tier) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ShareG3() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- commit.cc
  struct Batch;
  static absl::Status CommitTo(ChunkIndex& index, const Batch& batch);
  absl::Status SyncData(uint16_t device);
  void PumpIndex(uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayBeClean(const DeviceTier& tier) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BecomeUnclean(uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnCommitted(uint16_t device, std::shared_ptr<Batch> batch, absl::Status status);
  bool HasOtherRecord(uint16_t device, const ChunkId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t GiveUpAdds(DeviceTier& tier, Section& section, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveUnsure(uint16_t device, const DeviceTier::PendingAdd& add)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsPutOff(DeviceTier& tier, const absl::Status& status) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnAddCommitted(DeviceTier& tier, const DeviceTier::PendingAdd& add)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsAtRest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartSync(uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers who waited for what is stable now, or will never be. False: not all, the hold is spent.
  bool AnswerSyncWaiters(DeviceTier& tier) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A pump came to the end of its hold: all pumps of the device go on after it, in holds of their
  // own.
  void PumpLater(uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeepPumping(uint16_t device);
  void OnSynced(uint16_t device, const StableMark& mark, absl::Status status);
  void NoteFailedSync(DeviceTier& tier, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnSyncPutOff(uint16_t device);
  void NoteIo(LowerTier& tier, bool write, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- join.cc
  struct Arrival;
  void ExpectPuts() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeG3Policies(DeviceTier& tier) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status BeginJoin(uint16_t device, const StoreDeps::DeviceDeps& deps);
  absl::Status Join(uint16_t device);
  absl::StatusOr<Arrival> ReadRecords(uint16_t device, bool at_start);
  void BeginAdopting(const Arrival& arrival, bool damaged);
  void ForgetOldestOfG2(Arrival& arrival) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AdoptBatch(Arrival& arrival);  // false: the store drains, so nothing joins any more
  std::optional<ChunkSlot> AdoptRecord(Arrival& arrival, const IndexRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  enum class Becomes : uint8_t { kChunk, kKept, kNothing };
  Becomes WhatBecomesOf(const ChunkId& id, const KnownRecord& record, ChunkSlot* slot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayBeStoredToo(ChunkSlot slot, const KnownRecord& record) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void DropRecord(DeviceTier& tier, const IndexRecord& record, bool claimed);
  void InsertByAge(const Arrival& arrival);
  void EndJoin(Arrival& arrival);
  void Trim();
  void LetGo(uint16_t device);
  void ForgetAll(Section& section, uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetRecord(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AnyComes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // No device took it: who waits until it is durable waits for one that comes, or is told.
  void WaitForDevice(ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteForWaiters(Section& section) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AnyJoins() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteDoubtful(DeviceTier& tier, const Doubtful& noted, CommitSequence after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static absl::Status SaveDoubtful(ChunkIndex& index, const Doubtful& doubtful);

  // ---- recency.cc
  void SaveRecencyIfDue(Section& section, uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SaveRecency(Section& section, uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<int64_t> RecencyCuts(Section& section, uint16_t device, double wanted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnRecencySaved(uint16_t device, bool saved);

  // ---- learned.cc
  void LoadLearned(uint16_t device);  // of one that joins
  void SaveLearned(uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- leave.cc
  void LeaveIfQuiet(uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Leave(uint16_t device, StatusCallback has_left);

  // ---- confirm.cc
  void PumpConfirms(uint16_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnConfirmRead(ConfirmQueue::Entry confirm, AlignedPage& page, absl::Status status);

  // ---- set_limits.cc
  static StoreOptions ResolveLimits(StoreOptions options, const StoreDeps& deps);
  // ResourceExhausted: what cannot go now is more. FailedPrecondition: more than was built.
  absl::Status CheckCapacities(const StoreOptions& options) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Shares of sessions, the chunk table and, within the quotas, G3: as those of G2.
  static std::vector<Shares::Claim> ClaimsOf(const StoreOptions& options, bool quotas);
  // Of all memory, what is the tenant's; and of what may be written to G3 in a second.
  double PartOf(size_t tenant) const { return parts_[tenant]; }
  double WriteRate(const StoreOptions& options, size_t tenant) const;
  G2Pool::Limits PoolLimits(const StoreOptions& options, size_t tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LimitDevice(const StoreOptions& options, size_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // By TenantId. They know nothing yet.
  std::vector<std::unique_ptr<AdmissionPolicy>> MakeAdmissions(const StoreOptions& options) const;
  void SetTenantLimits(const StoreOptions& options) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What cannot go now stays until a later Tick.
  void TrimToNewQuotas(Section& section) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TrimToNewCapacities(Section& section) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- operate.cc
  // False: the tenant has nothing there that can go.
  bool EvictOneOf(Section& section, TenantId tenant, bool of_g3, EvictResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- metadata.cc
  // REQUIRES: InG3(chunk).
  void ReadTail(const Chunk& chunk, MetadataCallback done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- admin.cc
  void CheckMarks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckTold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds what is kept of each device.
  void CheckReplaced(std::vector<uint64_t>& g3_blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckDevices(const std::vector<uint64_t>& g3_blocks, const std::vector<uint64_t>& stored)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckShares() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- recover_g2.cc
  struct RecoveredImage {
    ChunkSlot slot;
    Generation generation;
  };
  void RecoverG2() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Nothing: what is marked there is no image of this arena's.
  std::optional<RecoveredImage> AdoptImage(BlockNumber block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SnapshotTiers(StoreSnapshot& snapshot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SnapshotSessions(Section& section, StoreSnapshot& snapshot,
                        std::vector<std::shared_ptr<const SessionInfo>>& infos)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- state: constant after construction
  const StoreOptions options_;  // as it was started; what may change is in limits_
  const StoreDeps deps_;
  const Incarnation incarnation_;
  const Owners owners_;
  std::vector<double> parts_;               // of the arena, by TenantId
  std::vector<const DataKey*> write_keys_;  // by TenantId; null: what is written stays plain
  const std::shared_ptr<CipherBuffers> cipher_buffers_ = std::make_shared<CipherBuffers>();

  // ---- state that has a lock of its own
  Mutex telling_mu_;
  ReuseMeter reuse_;

  // ---- state: protected by mu_
  Mutex mu_;
  StoreOptions limits_ ABSL_GUARDED_BY(mu_);        // those of now
  bool over_quota_ ABSL_GUARDED_BY(mu_) = false;    // somebody may hold more than a new quota
  bool over_capacity_ ABSL_GUARDED_BY(mu_) = true;  // a tier may hold more than its capacity
  bool at_rest_ ABSL_GUARDED_BY(mu_) = false;       // and nobody asked for anything since
  std::optional<MonotonicTime> last_tick_ ABSL_GUARDED_BY(mu_);
  Hold hold_ ABSL_GUARDED_BY(mu_);
  ChunkTable table_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<ThreadPool> recovery_helper_ ABSL_GUARDED_BY(mu_);  // during Recover()
  std::vector<std::unique_ptr<G2Pool>> pools_ ABSL_GUARDED_BY(mu_);   // by TenantId
  Shares slot_shares_ ABSL_GUARDED_BY(mu_);                           // of the table
  Shares g3_shares_ ABSL_GUARDED_BY(mu_);                             // of all devices, in blocks
  std::vector<TenantCounters> tenant_counters_ ABSL_GUARDED_BY(mu_);  // as Shares: nobody is last
  std::vector<std::unique_ptr<AdmissionPolicy>> admissions_ ABSL_GUARDED_BY(mu_);  // by TenantId
  LiveMarks marks_ ABSL_GUARDED_BY(mu_);
  std::vector<ChunkSlot> unverified_ ABSL_GUARDED_BY(mu_);  // for the sweep, from the back; or gone
  ChunkSlot sweeping_ ABSL_GUARDED_BY(mu_) = kNoSlot;
  uint64_t sweep_budget_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // until the next tick
  Scrubber scrubber_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<DeviceTier>> devices_ ABSL_GUARDED_BY(mu_);
  SessionTable sessions_ ABSL_GUARDED_BY(mu_);
  LeaseBook leases_ ABSL_GUARDED_BY(mu_);
  Puts puts_ ABSL_GUARDED_BY(mu_);
  // Trees: a hash map that grows moves all of its entries under the lock.
  absl::btree_map<ChunkSlot, std::unique_ptr<Promotion>> promotions_ ABSL_GUARDED_BY(mu_);
  absl::btree_map<ChunkSlot, std::unique_ptr<WriteBack>> write_backs_ ABSL_GUARDED_BY(mu_);
  DurableWaiters durable_waiters_ ABSL_GUARDED_BY(mu_){&hold_};
  std::vector<absl::Status> failed_syncs_;  // by device, of its data; the sync executors' own
  // By device. Changed under the lock, while nothing of it is under way: others read it without.
  std::vector<StoreDeps::DeviceDeps> attached_;
  ReplacedRecords replaced_ ABSL_GUARDED_BY(mu_);
  bool wait_for_device_ ABSL_GUARDED_BY(mu_) = false;  // some of durable_waiters_
  DirtyChunks dirty_ ABSL_GUARDED_BY(mu_);
  MonotonicTime unbacked_again_at_ ABSL_GUARDED_BY(mu_){0};  // who waits is not queued before
  uint64_t moves_ ABSL_GUARDED_BY(mu_) = 0;  // of chunks to other slots, of devices out
  uint64_t next_generation_ ABSL_GUARDED_BY(mu_) = 1;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  StoreCounters counters_ ABSL_GUARDED_BY(mu_);
  Histogram lock_hold_ ABSL_GUARDED_BY(mu_);
  Histogram write_back_age_ ABSL_GUARDED_BY(mu_){kAgeBounds};
  LifeSamples life_ ABSL_GUARDED_BY(mu_);
  NamespaceMeters meters_ ABSL_GUARDED_BY(mu_);
  EventHub events_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::store_internal

#include "tiers/store/section.h"
