// Store: the chunk table, leases, in-flight operations and movement between G2 and G3.
//
// It is one state machine behind one mutex. No call blocks on I/O: the store hands out work to
// devices, index and executors, and callbacks tell it the outcome. Nothing is read, copied, hashed
// or committed under the lock, and no callback of a caller runs under it. Time, randomness,
// devices, index and threads come from StoreDeps, so a simulator can run it from one seed.
//
// It guarantees: a read returns the whole bytes of one put under that namespace, key and part, or a
// miss. The capacity of each tier is a hard limit. A leased chunk keeps its place in G2 until
// the lease ends. A closed session gives back all that it held. Every callback runs once.
//
//   put     Reserve -> Reservation::Append ... -> Seal (visible) -> write-back follows by itself
//   read    Lookup with a lease -> Read (pins) -> ChunkReader::WhenReady -> bytes in place
//
// Thread-safe. ChunkReaders and Reservations must be gone before the store is destroyed.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <vector>

#include "tiers/remote/offered_chunk.h"
#include "tiers/remote/peer_source.h"
#include "tiers/store/events.h"
#include "tiers/store/handles.h"
#include "tiers/store/snapshot.h"
#include "tiers/store/store_deps.h"
#include "tiers/store/types.h"

namespace kvkeep {
namespace store_internal {
struct StoreParts;
}

class Store {
 public:
  // Recovers the chunks of G2 and of the devices that are there. Blocks for O(records).
  static absl::StatusOr<std::unique_ptr<Store>> Create(const StoreOptions& options,
                                                       const StoreDeps& deps);
  // Does not wait. Stop devices and executors first (see StoreDeps).
  ~Store();

  // Lets a device join. Its records are recovered on its index executor while the store serves.
  // Until that is done its chunks are misses, and nothing is written there. Chunks deleted since
  // the start stay deleted. `done` gets OK, or why the device did not join; then the store has let
  // go of it, and it may be attached again. FailedPrecondition at once: the place is taken.
  void Attach(size_t device, const StoreDeps::DeviceDeps& deps, StatusCallback done);
  // An expected device (StoreDeps) could not be opened, so durable puts stop waiting for it.
  void NotComing(size_t device);
  // Returns the state of a device; none: it is away or does not answer. Cheap. If it is kReadOnly
  // or kOffline, opening it anew may help.
  std::optional<DeviceState> StateOfAnswering(size_t device) const;
  // Takes a device out of its place, so that it can be opened anew. The store begins nothing on it
  // any more, waits until I/O under way has ended (even if it hangs), then lets go of it and calls
  // `done`, in a later Tick. FailedPrecondition at once: the device is not here, or the store
  // drains. The index keeps its records. Chunks deleted before stay deleted when the device joins
  // again, unless the drive has lost the end of the index's log.
  void Detach(size_t device, StatusCallback done);
  Incarnation incarnation() const;
  StoreOptions options() const;  // in effect; zeros are replaced by the values that they mean
  // Takes over the options that may change while a store runs: the limits of sessions, leases,
  // reserved and dirty bytes; the rates of the scrub and of admitted writes; the admission policy
  // (a new one has learned nothing); the capacities; each tenant's rates, leased bytes and quota of
  // G3. A session or tenant above a new limit keeps what it holds and gets no more. Above a new
  // quota or capacity chunks are evicted at once, in the policies' order.
  //
  // The arena and the devices' files keep their size: a capacity is a limit within it. If one
  // capacity cannot be had, nothing changes. FailedPrecondition: it is more than was built.
  // ResourceExhausted: chunks of G2 that cannot go now (leased, in flight, not yet written to G3)
  // need more. In G3 chunks that are being read, written or removed go a little later; until then
  // the snapshot shows the used bytes as capacity. REQUIRES: valid options with the same tenants.
  absl::Status SetLimits(const StoreOptions& options);

  // Adds extents of the arena that have memory now (Arena::TakeMore). Each adds to the G2 of the
  // tenant that has its segment. Extents without memory count for nobody, and limits are in
  // proportion to the memory that is there. REQUIRES: each extent once.
  void AddMemory(const std::vector<Extent>& extents);

  // Sessions. ResourceExhausted over max_sessions. Every call below that names a session answers
  // FailedPrecondition when the session is not open, and PermissionDenied when its grants do not
  // cover the call. While the tenant is over one of its rates (TenantOptions), Reserve rejects, and
  // Lookup, Touch, Prefetch, Delete and Read answer ResourceExhausted.
  absl::StatusOr<SessionToken> OpenSession(const SessionInfo& info);
  void CloseSession(const SessionToken& session);  // no-op when unknown
  // CloseSession for a client that stopped responding. Counts the session and its leases.
  void RevokeSession(const SessionToken& session);
  // A session may open a namespace of another tenant that has the session's tenant among its
  // readers. There it may read; calls that write are PermissionDenied. Rates and leases are charged
  // to the session's own tenant. Leases and reads of other tenants hold at most half of what the
  // owner's own leases may. PermissionDenied: it is no reader, or there is no such tenant, alike.
  absl::StatusOr<NamespaceDigest> OpenNamespace(const SessionToken& session,
                                                const NamespaceSpec& spec);
  absl::StatusOr<TenantId> TenantOf(const SessionToken& session) const;
  // Returns the declaration of a namespace that this session opened.
  absl::StatusOr<NamespaceSpec> FindNamespace(const SessionToken& session,
                                              const NamespaceDigest& ns) const;
  // Returns the number that a session with the namespace open declared; 0: no session has it open.
  uint32_t TokensPerChunk(const NamespaceDigest& ns) const;

  absl::StatusOr<LookupResult> Lookup(const SessionToken& session, const LookupRequest& request);
  // Does a Lookup, unless request.beyond asks for a search that is worth it. Then this returns none
  // and searches for the missing keys beyond the node. Once the chunks that are worth it are on
  // their way, or the wait is over, it calls `searched`, later and with no lock held. A Lookup by
  // the same request with `after_search` set then finds the chunks that are coming.
  std::optional<absl::StatusOr<LookupResult>> LookupOrSearch(
      const SessionToken& session, const LookupRequest& request,
      absl::AnyInvocable<void() &&> searched);
  // Only searches, for the keys behind the leading ones, for a caller that reads chunk by chunk.
  // `asked` gets whether there was a search. If not, it may be called before this returns.
  void AskBeyond(const SessionToken& session, const LookupRequest& request,
                 absl::AnyInvocable<void(bool) &&> asked);
  absl::Status Release(const SessionToken& session, LeaseId lease, uint32_t keep_keys);
  absl::StatusOr<uint64_t> Touch(const SessionToken& session, const ChunkSet& chunks);
  // Begins to bring the chunks into G2, from beyond the node, too, as Recall does.
  absl::StatusOr<PrefetchResult> Prefetch(const SessionToken& session, const ChunkSet& chunks);
  // Deletes the chunks: no call finds them from here on. A kill may bring them back before
  // WhenDeleted has answered.
  absl::StatusOr<uint64_t> Delete(const SessionToken& session, const ChunkSet& chunks);
  // Calls `done` once no kill of the process brings back a chunk that was deleted or cleared
  // before; with `durable`, no loss of power either. An error: one might; call it again to wait for
  // the same. A kill may bring chunks back from a device that is away or joins.
  void WhenDeleted(bool durable, StatusCallback done);

  // Brings the chunks that the node does not have into G2 from beyond it, if they are there. `done`
  // gets the number of chunks that came, once no more will come. Unavailable: nothing lies beyond
  // the node, it does not answer, too many recalls are under way, or the store drains.
  void Recall(const SessionToken& session, const ChunkSet& chunks,
              absl::AnyInvocable<void(absl::StatusOr<uint64_t>) &&> done);
  bool reaches_beyond() const;  // whether something lies beyond the node
  bool beyond_is_quiet() const;    // what lies there has answered all; in a drain it stays true
  bool learning_is_quiet() const;  // no task of it is left; wait for this after the drain
  // Pins one chunk for reading. With a lease (not 0) it finds the chunk that the lease holds, even
  // if that was deleted since. FailedPrecondition: the lease is unknown.
  absl::StatusOr<ReadResult> Read(const SessionToken& session, const ChunkId& id, LeaseId lease,
                                  bool transient);
  // Calls of another node of the fleet, which the caller has checked; no use of a chunk.
  PeerSource::Found LookForPeer(std::span<const ChunkId> ids);
  ReadResult ReadForPeer(const ChunkId& id);
  void NameForPeers(const TenantTags& tenants, TakeName take);           // all that they could read
  void TakeOffer(std::vector<OfferedChunk> chunks, OfferCallback done);  // peer_offers.h
  HotChunks NameHottest(const TenantTags& tenants, size_t most);         // to be offered to others

  absl::StatusOr<ReserveResult> Reserve(const SessionToken& session, const PutRequest& request);
  // Charges the session's tenant for payload that a put sent although its answer was known, and
  // that was thrown away. `within_rate`: Reserve let this chunk go on, so it may overdraw the rate
  // as a stored chunk may. If not: ResourceExhausted while the tenant is over its bytes per second;
  // then take no more payload.
  absl::Status ChargeDiscarded(const SessionToken& session, uint64_t bytes, bool within_rate);
  // Calls `done` once the chunk is on stable storage. NotFound: there is no such chunk, or a power
  // cut may have lost its bytes (not those of a chunk that a durable put sealed or found PRESENT).
  // Unavailable: no device takes it, or its device failed.
  void WhenDurable(const ChunkId& id, StatusCallback done);

  // Admin. Returns how many chunks it forgot. No namespace: forgets everything, reuse() included.
  uint64_t Clear(const std::optional<NamespaceDigest>& ns);
  std::vector<NamespaceUse> Namespaces();  // walks all chunks, in slices
  ReuseSnapshot reuse() const;             // takes no store lock
  // Evicts the chunks that the policy would give up next and that can go now. A chunk of G2 that
  // was not written back is lost. NotFound: there is no such tenant.
  absl::StatusOr<EvictResult> Evict(const EvictRequest& request);
  // Begins one round of the scrub at the first chunk, at this rate or the configured one, whichever
  // is higher. 0 ends the round. snapshot().scrub tells how far it is.
  void ScrubRound(uint64_t bytes_per_second);
  // Refuses puts and new sessions from now on, and writes dirty chunks back whatever the budgets
  // say. snapshot().dirty_chunks tells how far that is. `write_remote`: chunks that wait to be
  // written beyond the node are still written (snapshot().remote_writes_left). Without it no more
  // of these writes begin; a later call may end them so.
  void BeginDrain(bool write_remote = false);
  void SyncAll(StatusCallback done);  // a last time, after BeginDrain; gets the first error
  // Does periodic work (syncs, retries). The owner calls it about ten times a second. Returns
  // whether the store is at rest; then once a second is enough until StoreDeps::wake is called.
  bool Tick();
  // Return a reader of events. Watch: of one namespace that the session opened. PermissionDenied:
  // it has no grant to read. ResourceExhausted: the tenant has used up its part of
  // EventLimits::max_readers. WatchAll, for the daemon itself: of one tenant or of all.
  absl::StatusOr<EventReader> Watch(const SessionToken& session, const NamespaceDigest& ns);
  EventReader WatchAll(std::optional<TenantId> tenant = {});
  // Reads a chunk's metadata, from G2 or else from G3, by small reads that promote nothing and do
  // not count as a use. NotFound: there is no such chunk any more. FailedPrecondition: it is in G3
  // alone and encrypted. Any other error: its device failed.
  void ReadMetadata(const ChunkId& id,
                    absl::AnyInvocable<void(absl::StatusOr<std::string>) &&> done);
  // Returns the chunks that other tenants' readers were given since the last call.
  std::vector<ForeignRead> TakeForeignReads();
  StoreSnapshot snapshot() const;
  // For tests. Returns the longest hold of the lock since the last call, in CPU time; 0 without a
  // work_clock. Resets StoreCounters::lock_worked_ns_max.
  uint64_t TakeLongestHoldNs();
  void CheckInvariants() const;  // for tests; walks all state

 private:
  explicit Store(std::unique_ptr<store_internal::StoreParts> parts);
  std::unique_ptr<store_internal::StoreParts> parts_;
};

}  // namespace kvkeep
