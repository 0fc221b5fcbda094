// Store: the chunk table, leases, in-flight operations and movement between G2 and G3.
//
// A deterministic core behind one mutex. No call blocks on I/O: the store hands out work to
// devices, index and executors, and is told the outcome by callbacks. Nothing is read, copied,
// hashed or committed under the lock, and no callback of a caller runs under it. Time, randomness,
// devices, index and threads come in through StoreDeps, so a simulator can run it from one seed.
//
// What it guarantees: a read returns the whole bytes of one put under that namespace, key and part,
// or a miss; capacity of both tiers is a hard limit; what a lookup leased stays where it is until
// the lease ends; all that a session holds is given back when it is closed; every callback runs
// once.
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
#include <span>
#include <vector>

#include "tiers/store/events.h"
#include "tiers/store/handles.h"
#include "tiers/store/snapshot.h"
#include "tiers/store/store_deps.h"
#include "tiers/store/types.h"

namespace kvkeep {

namespace store_internal {
class Core;
}

struct ReserveResult {
  enum class Outcome : uint8_t { kReserved, kPresent, kRejected } outcome = Outcome::kRejected;
  RejectReason reason = RejectReason::kNone;
  std::string message;     // names the limit and its value
  bool over_rate = false;  // that limit is one of a second: other chunks will be refused, too
  bool ask_again = false;  // PutRequest::asks_again: not rejected, over the limit of reserved bytes
  Reservation reservation;
};

struct ReadResult {
  ReadOutcome outcome = ReadOutcome::kMiss;
  bool from_g3 = false;  // a promotion was needed, or is under way
  ChunkReader reader;
};

class Store {
 public:
  // Recovers what G2 holds, then what the devices hold that are there; takes O(records). Blocks:
  // nobody is served yet.
  static absl::StatusOr<std::unique_ptr<Store>> Create(const StoreOptions& options,
                                                       const StoreDeps& deps);
  // Waits for nothing: stop devices and executors first (see StoreDeps).
  ~Store();

  // A device has come to its place. Recovers what it holds, on its index executor, while the store
  // serves: until then its chunks are misses, and nothing is written there. What was deleted since
  // the start stays deleted. `done`: OK, or why not; then the store has let go of the device, and
  // may be given it again. FailedPrecondition at once: the place is taken.
  void Attach(size_t device, const StoreDeps::DeviceDeps& deps,
              absl::AnyInvocable<void(absl::Status) &&> done);

  // A device that was coming (StoreDeps) could not be opened: nobody waits for it any more.
  void NotComing(size_t device);

  // Of a device that is here and answers, at little cost. Where it is kReadOnly or kOffline,
  // opening it anew may help.
  std::optional<DeviceState> StateOfAnswering(size_t device) const;
  // The device leaves its place, for another attempt to open it. Nothing begins on it any more;
  // what is under way ends; then the store lets go of it and calls `done`, in a later Tick. While
  // I/O hangs, it waits. FailedPrecondition at once: it is not here, or the store drains. Its
  // index keeps its records. What was deleted before stays deleted at its next join, unless its
  // drive has forgotten the end of the index's log.
  void Detach(size_t device, absl::AnyInvocable<void(absl::Status) &&> done);

  Incarnation incarnation() const;
  StoreOptions options() const;  // as they are now; zeros replaced by what they mean
  // Takes over what may change while a store runs: the limits of sessions, leases, reserved and
  // dirty bytes, the rates of the scrub and of admitted writes, the admission policy (a new one
  // knows nothing yet), the capacities, and of each tenant its rates, its leases' bytes and its
  // quota of G3. Who holds more than a new limit keeps it, and gets no more; over a quota or a
  // capacity what the policies say goes, now. All else stays as it is.
  //
  // A capacity is a limit within what was built, the arena and the devices' files, which stay as
  // they are. Nothing is changed when one cannot be had. FailedPrecondition: it is more than was
  // built. ResourceExhausted: so much of G2 cannot go now, as it is leased, in flight or not yet
  // written to G3. In G3 what is being read, written or removed goes a little later; until then
  // the snapshot's capacity is what is used. REQUIRES: valid options with the tenants of before.
  absl::Status SetLimits(const StoreOptions& options);

  // These extents of the arena have memory now (Arena::TakeMore): tenants whose they are have so
  // much more of G2. What has none yet is nobody's, and limits are of what there is. REQUIRES: each
  // once.
  void AddMemory(const std::vector<Extent>& extents);

  // Sessions. ResourceExhausted over max_sessions. Every call below that names a session answers
  // FailedPrecondition when it is not open, and PermissionDenied when its grants do not
  // have it. Lookup, Touch, Prefetch, Delete and Read answer ResourceExhausted, Reserve rejects,
  // when the tenant is over one of its rates (TenantOptions).
  absl::StatusOr<SessionToken> OpenSession(const SessionInfo& info);
  void CloseSession(const SessionToken& session);  // no-op when unknown
  // CloseSession for a client that stopped responding: counted, with its leases.
  void RevokeSession(const SessionToken& session);
  // Of another tenant, where that one has this session's among its readers: what reads is allowed
  // there, what writes is PermissionDenied. Rates and leases are charged to the session's own
  // tenant; leases and reads of others hold at most half of what an owner's own leases may.
  // PermissionDenied, the same for "not a reader" and "there is no such tenant".
  absl::StatusOr<NamespaceDigest> OpenNamespace(const SessionToken& session,
                                                const NamespaceSpec& spec);
  absl::StatusOr<TenantId> TenantOf(const SessionToken& session) const;  // as whom it was opened
  // The declaration of a namespace that this session opened.
  absl::StatusOr<NamespaceSpec> FindNamespace(const SessionToken& session,
                                              const NamespaceDigest& ns) const;

  absl::StatusOr<LookupResult> Lookup(const SessionToken& session, const LookupRequest& request);
  absl::Status Release(const SessionToken& session, LeaseId lease, uint32_t keep_keys);
  absl::StatusOr<uint64_t> Touch(const SessionToken& session, const ChunkSet& chunks);
  absl::StatusOr<PrefetchResult> Prefetch(const SessionToken& session, const ChunkSet& chunks);
  absl::StatusOr<uint64_t> Delete(const SessionToken& session, const ChunkSet& chunks);

  // Brings what of these chunks this node has not from beyond it, as far as it is there: after
  // `done` they are found in G2, until they are evicted. `done` gets how many came, once no more
  // will.
  // Unavailable: nothing lies beyond, it does not answer, too many recalls are under way, or the
  // store drains.
  void Recall(const SessionToken& session, const ChunkSet& chunks,
              absl::AnyInvocable<void(absl::StatusOr<uint64_t>) &&> done);

  // Pins one chunk for reading. With a lease (not 0), what the lease holds is found even when it
  // was deleted since; FailedPrecondition when the lease is unknown.
  absl::StatusOr<ReadResult> Read(const SessionToken& session, const ChunkId& id, LeaseId lease,
                                  bool transient);

  absl::StatusOr<ReserveResult> Reserve(const SessionToken& session, const PutRequest& request);
  // Payload of a put that came although its answer was known, and was thrown away: charged to the
  // session's tenant as what is kept is. `within_rate`: of a chunk that Reserve let go on, which
  // overdraws as a stored one does. Else ResourceExhausted over its bytes a second: no more should
  // be taken.
  absl::Status ChargeDiscarded(const SessionToken& session, uint64_t bytes, bool within_rate);
  // Calls `done` once the chunk is on stable storage; NotFound or Unavailable when it will not be,
  // or when its bytes may have been lost with the power. Never fails this way for a durable put
  // that Reserve or Seal accepted.
  void WhenDurable(const ChunkId& id, absl::AnyInvocable<void(absl::Status) &&> done);

  // Admin. Clear without a namespace forgets everything, reuse() included; returns how many chunks.
  uint64_t Clear(const std::optional<NamespaceDigest>& ns);
  std::vector<NamespaceUse> Namespaces();  // walks all chunks, in slices
  // What lookups asked for and how far back it lay, by a sample; does not take the store's lock.
  ReuseSnapshot reuse() const;
  // Those that the policy would give up next, as far as they can go now; NotFound: no such tenant.
  // What goes from G2 and was not written back is gone.
  absl::StatusOr<EvictResult> Evict(const EvictRequest& request);
  // One round of the scrub from the first chunk on, at this rate where it is more than the
  // configured one; 0 ends it. snapshot().scrub tells how far it is.
  void ScrubRound(uint64_t bytes_per_second);
  // From now on puts and new sessions are refused and dirty chunks are written back without regard
  // to budgets. snapshot().dirty_chunks tells how far it is.
  void BeginDrain();
  // A final sync of every device; `done` with the first error. After BeginDrain.
  void SyncAll(absl::AnyInvocable<void(absl::Status) &&> done);
  // Periodic work (sync interval, retries). The owner calls it about ten times a second; where it
  // returns true, at rest, once a second does until StoreDeps::wake was called.
  bool Tick();

  // Tells what enters and leaves the tiers: in a namespace that the session opened, which it may
  // read; or in all of a tenant's or of all tenants', for the daemon itself. PermissionDenied: no
  // grant to read. ResourceExhausted: the tenant has its part of EventLimits::max_readers.
  absl::StatusOr<EventReader> Watch(const SessionToken& session, const NamespaceDigest& ns);
  EventReader WatchAll(std::optional<TenantId> tenant = {});
  // A chunk's metadata, from G2, or from G3 by some small reads that bring nothing to G2 and count
  // as no use. NotFound: there is no such chunk any more. FailedPrecondition: it is in G3 alone,
  // encrypted. Else its device failed.
  void ReadMetadata(const ChunkId& id,
                    absl::AnyInvocable<void(absl::StatusOr<std::string>) &&> done);

  // What was handed to readers of other tenants since the last call of this.
  std::vector<ForeignRead> TakeForeignReads();
  StoreSnapshot snapshot() const;
  // The longest hold of the lock since the last call of this, in CPU time; 0 without a work_clock.
  // For tests: StoreCounters::lock_worked_ns_max starts anew.
  uint64_t TakeLongestHoldNs();
  // Walks all state; for tests and the simulator. Fails a check when an invariant is broken.
  void CheckInvariants() const;

 private:
  explicit Store(std::unique_ptr<store_internal::Core> core);
  std::unique_ptr<store_internal::Core> core_;
};

}  // namespace kvkeep
