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
#include "tiers/store/disk.h"
#include "tiers/store/event_hub.h"
#include "tiers/store/fill_outcomes.h"
#include "tiers/store/filler.h"
#include "tiers/store/image_verifier.h"
#include "tiers/store/leases.h"
#include "tiers/store/namespace_meters.h"
#include "tiers/store/owners.h"
#include "tiers/store/puts.h"
#include "tiers/store/recaller.h"
#include "tiers/store/remote_tier.h"
#include "tiers/store/reuse_meter.h"
#include "tiers/store/promoter.h"
#include "tiers/store/scrub_reader.h"
#include "tiers/store/scrubber.h"
#include "tiers/store/section.h"
#include "tiers/store/session_table.h"
#include "tiers/store/shares.h"
#include "tiers/store/sweeper.h"

// Marks a method whose caller holds the lock.
#define LOCKED STORE_LOCKED

namespace kvkeep::store_internal {

class Core final : private ChunkHooks, private Recaller::Host {
 public:
  using MetadataCallback = absl::AnyInvocable<void(absl::StatusOr<std::string>) &&>;

  Core(const StoreOptions& options, const StoreDeps& deps);

  // What an earlier process left in G2, and then each device that is there.
  absl::Status Recover();

  // ---- store.h, same contracts (sessions.cc, lookup.cc, put.cc, read.cc, admin.cc)
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
  void Unpin(ChunkSlot slot, bool lent);
  uint64_t Clear(const std::optional<NamespaceDigest>& ns);
  std::vector<NamespaceUse> Namespaces();
  absl::StatusOr<EvictResult> EvictSome(const EvictRequest& request);
  void ScrubRound(uint64_t bytes_per_second);
  void BeginDrain(bool write_remote);
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
  Disk& disk() { return disk_; }
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
  // Nothing is under way, and nothing waits for its time.
  bool IsAtRest() const LOCKED;

  // ---- sessions.cc
  void UnpinLeased(LeaseHolder& holder, const Lease::Entry& entry) LOCKED;
  void UnpinAll(Section& section, LeaseHolder& holder,
                const std::vector<Lease::Entry>& entries) LOCKED;

  // ---- lookup.cc
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

  // ---- recall.cc
  absl::Status MayAskBeyond(TenantId asks) LOCKED;
  bool SearchIfWorth(Section& section, const LookupRequest& request, const LookupState& lookup,
                     const RecallingPtr& recalling) LOCKED;

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
  // By TenantId. They have learned nothing yet.
  std::vector<std::unique_ptr<AdmissionPolicy>> MakeAdmissions(const StoreOptions& options);
  void SetTenantLimits(const StoreOptions& options) LOCKED;

  // ---- operate.cc
  // False: the tenant has no chunk there that can go.
  bool EvictOneOf(Section& section, TenantId tenant, bool of_g3, EvictResult& result) LOCKED;

  // ---- metadata.cc
  // REQUIRES: InG3(chunk).
  void ReadTail(const Chunk& chunk, MetadataCallback done) LOCKED;

  // ---- admin.cc
  void CheckMarks() LOCKED;
  void CheckTold() LOCKED;
  void CheckShares() LOCKED;

  void SnapshotTiers(StoreSnapshot& snapshot) LOCKED;
  void SnapshotSessions(Section& section, StoreSnapshot& snapshot,
                        std::vector<std::shared_ptr<const SessionInfo>>& infos) LOCKED;

  // ---- state: constant after construction
  const StoreOptions options_;  // of the start; options that may change are in limits_
  const StoreDeps deps_;
  const Incarnation incarnation_;
  const Owners owners_;
  const std::shared_ptr<CipherBuffers> cipher_buffers_ = std::make_shared<CipherBuffers>();

  // ---- state that has a lock of its own
  ReuseMeter reuse_;

  // ---- the parts, each of which knows those above it (sweeper_ and outcomes_ excepted, which are
  // named before they are there)
  Chunks chunks_;
  EventHub events_ STORE_GUARDED;
  Scrubber scrubber_ STORE_GUARDED;
  const ImageVerifier verifier_;
  Filler filler_;
  Disk disk_;
  Sweeper sweeper_;
  Promoter promoter_;
  ScrubReader scrub_reader_;
  FillOutcomes outcomes_;

  // ---- the chunks' state, for the files of this class
  Hold& hold_ STORE_GUARDED = chunks_.hold;
  ChunkTable& table_ STORE_GUARDED = chunks_.table;
  std::vector<std::unique_ptr<G2Pool>>& pools_ STORE_GUARDED = chunks_.pools;
  Shares& slot_shares_ STORE_GUARDED = chunks_.slot_shares;
  LiveMarks& marks_ STORE_GUARDED = chunks_.marks;
  LifeSamples& life_ STORE_GUARDED = chunks_.life;
  StoreCounters& counters_ STORE_GUARDED = chunks_.counters;
  std::vector<TenantCounters>& tenant_counters_ STORE_GUARDED = chunks_.tenant_counters;

  // ---- state: protected by the lock
  StoreOptions limits_ STORE_GUARDED;  // the options in effect
  std::optional<MonotonicTime> last_tick_ STORE_GUARDED;
  SessionTable sessions_ STORE_GUARDED;
  LeaseBook leases_ STORE_GUARDED;
  Puts puts_ STORE_GUARDED;
  NamespaceMeters meters_ STORE_GUARDED;

  // ---- null: nothing lies beyond the node
  const std::unique_ptr<RemoteTier> remote_ ABSL_PT_GUARDED_BY(store_lock);
  std::unique_ptr<Beyond> beyond_;      // set once, by the constructor
  std::unique_ptr<Recaller> recaller_;  // likewise
};

}  // namespace kvkeep::store_internal

#undef LOCKED
