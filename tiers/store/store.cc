#include "tiers/store/store.h"

#include <absl/container/btree_map.h>
#include <absl/strings/str_cat.h>

#include <bit>
#include <cstring>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/base/test_point.h"
#include "tiers/store/store_parts.h"

namespace kvkeep {

using store_internal::StoreParts;

namespace {

absl::Status CheckKeys(const StoreOptions& options, const KeyRing* keys) {
  if (keys == nullptr) return absl::OkStatus();
  std::vector<TenantOptions> tenants = options.tenants;
  if (tenants.empty()) tenants.emplace_back();
  for (const TenantOptions& tenant : tenants) {
    if (keys->ForTenant(tenant.name) != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tenant '", tenant.name, "' has no key to encrypt its chunks with"));
  }
  return absl::OkStatus();
}

absl::Status CheckCapacities(const StoreOptions& options, const StoreDeps& deps) {
  const size_t said = options.g3_capacity_bytes.size();
  if (said == 0 || said == deps.devices.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "g3_capacity_bytes has ", said, " entries, there are ", deps.devices.size(), " devices"));
}

absl::Status CheckTenants(const StoreOptions& options, const Arena& arena) {
  uint64_t segments = 0;
  absl::btree_map<uint32_t, std::string> tags;
  for (const TenantOptions& tenant : options.tenants) {
    for (const TenantId reader : tenant.readers) {
      if (reader.value() < options.tenants.size()) continue;
      return absl::InvalidArgumentError(absl::StrCat("tenant '", tenant.name, "' has reader ",
                                                     reader.value(), ", there are ",
                                                     options.tenants.size(), " tenants"));
    }
    if (tenant.g2_segments == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tenant '", tenant.name, "' has no segment of G2; it needs at least one"));
    }
    segments += std::min<uint64_t>(tenant.g2_segments, arena.segment_count() + 1);
    const auto [other, is_new] = tags.try_emplace(TenantOptions::Tag(tenant.name), tenant.name);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tenants '", other->second, "' and '", tenant.name,
          "' have the same name, or one with the same tag; give one of them another name"));
    }
  }
  if (segments <= arena.segment_count()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the tenants' segments of G2 are more than the ",
                                                 arena.segment_count(), " of the arena"));
}

}  // namespace

absl::Status StoreOptions::Validate() const {
  const auto known = EvictionPolicyNames();
  for (const std::string* name : {&g2_policy, &g3_policy}) {
    if (std::find(known.begin(), known.end(), *name) == known.end()) {
      return absl::InvalidArgumentError(absl::StrCat("policy '", *name, "' is not known"));
    }
  }
  const auto admissions = AdmissionPolicyNames();
  if (std::find(admissions.begin(), admissions.end(), g3_admission) == admissions.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("g3_admission '", g3_admission, "' is not known"));
  }
  if (g3_admission == "write_budget" && g3_write_bytes_per_second == 0) {
    return absl::InvalidArgumentError("g3_write_bytes_per_second is 0: write_budget needs a rate");
  }
  if (max_chunks == 0 || max_chunks > store_internal::ChunkTable::kMostChunks) {
    return absl::InvalidArgumentError(absl::StrCat("max_chunks is ", max_chunks,
                                                   ", allowed are 1 to ",
                                                   store_internal::ChunkTable::kMostChunks));
  }
  if (!std::has_single_bit(life_sample_one_in)) {
    return absl::InvalidArgumentError(
        absl::StrCat("life_sample_one_in is ", life_sample_one_in, ", it must be a power of two"));
  }
  if (events.max_readers == 0 || events.log_entries == 0) {
    return absl::InvalidArgumentError("events.max_readers and events.log_entries are at least 1");
  }
  if (max_keys_per_call == 0 || max_sessions == 0 || max_leases_per_session == 0) {
    return absl::InvalidArgumentError(
        "max_keys_per_call, max_sessions and max_leases_per_session are at least 1");
  }
  return absl::OkStatus();
}

uint64_t StoreOptions::MaxPayloadBytes(TenantId tenant) const {
  uint64_t segments = 0;
  for (const TenantOptions& one : tenants) segments += one.g2_segments;
  const TenantOptions& own = tenants[tenant.value()];
  const auto share = [&](uint64_t bytes) {
    return static_cast<uint64_t>(static_cast<double>(bytes) * static_cast<double>(own.g2_segments) /
                                 static_cast<double>(segments));
  };
  const uint64_t leased = own.max_leased_bytes > 0 ? own.max_leased_bytes : share(max_leased_bytes);
  const uint64_t image = std::min({share(g2_capacity_bytes), share(max_reserved_bytes), leased});
  constexpr uint64_t kMostBeside = kHeaderBytes + kMaxTailBytes;
  const uint64_t blocks = image / kBlockBytes * kBlockBytes;
  return std::min<uint64_t>(kMaxPayloadBytes, blocks - std::min(blocks, kMostBeside));
}

Store::Store(std::unique_ptr<StoreParts> parts) : parts_(std::move(parts)) {}
Store::~Store() = default;

absl::StatusOr<std::unique_ptr<Store>> Store::Create(const StoreOptions& options,
                                                     const StoreDeps& deps) {
  absl::Status valid = options.Validate();
  if (!valid.ok()) return valid;
  valid = CheckTenants(options, *deps.arena);
  if (!valid.ok()) return valid;
  valid = CheckCapacities(options, deps);
  if (!valid.ok()) return valid;
  valid = CheckKeys(options, deps.keys);
  if (!valid.ok()) return valid;
  KVKEEP_CHECK(deps.remote == nullptr || !deps.remote->keeps() || deps.remote_keys != nullptr);
  auto parts = std::make_unique<StoreParts>(options, deps);
  absl::Status recovered = parts->Recover();
  if (!recovered.ok()) return recovered;
  return std::unique_ptr<Store>(new Store(std::move(parts)));
}

Incarnation Store::incarnation() const { return parts_->chunks.incarnation(); }
StoreOptions Store::options() const { return parts_->limits.options(); }
absl::Status Store::SetLimits(const StoreOptions& options) { return parts_->limits.Set(options); }
void Store::AddMemory(const std::vector<Extent>& extents) { parts_->limits.AddMemory(extents); }

void Store::Attach(size_t device, const StoreDeps::DeviceDeps& deps,
                   absl::AnyInvocable<void(absl::Status) &&> done) {
  parts_->disk.joiner.Attach(device, deps, std::move(done));
}

void Store::NotComing(size_t device) { parts_->disk.tiers.NotComing(device); }

std::optional<DeviceState> Store::StateOfAnswering(size_t device) const {
  return parts_->disk.tiers.StateOfAnswering(device);
}

void Store::Detach(size_t device, absl::AnyInvocable<void(absl::Status) &&> done) {
  parts_->disk.leaver.Detach(device, std::move(done));
}

absl::StatusOr<SessionToken> Store::OpenSession(const SessionInfo& info) {
  return parts_->sessions.Open(info);
}
void Store::CloseSession(const SessionToken& session) { parts_->sessions.Close(session, false); }
void Store::RevokeSession(const SessionToken& session) { parts_->sessions.Close(session, true); }
absl::StatusOr<NamespaceDigest> Store::OpenNamespace(const SessionToken& session,
                                                     const NamespaceSpec& spec) {
  return parts_->sessions.OpenNamespace(session, spec);
}
std::vector<ForeignRead> Store::TakeForeignReads() { return parts_->served.TakeForeignReads(); }

absl::StatusOr<TenantId> Store::TenantOf(const SessionToken& session) const {
  return parts_->sessions.TenantOf(session);
}
absl::StatusOr<NamespaceSpec> Store::FindNamespace(const SessionToken& session,
                                                   const NamespaceDigest& ns) const {
  return parts_->sessions.FindNamespace(session, ns);
}
uint32_t Store::TokensPerChunk(const NamespaceDigest& ns) const {
  return parts_->sessions.TokensPerChunk(ns);
}
absl::StatusOr<LookupResult> Store::Lookup(const SessionToken& session,
                                           const LookupRequest& request) {
  return *LookupOrSearch(session, request, nullptr);
}
std::optional<absl::StatusOr<LookupResult>> Store::LookupOrSearch(
    const SessionToken& session, const LookupRequest& request,
    absl::AnyInvocable<void() &&> searched) {
  if (!request.beyond.asks() || !reaches_beyond()) searched = nullptr;
  auto result = parts_->lookups.LookupOrSearch(session, request, std::move(searched));
  if (result.has_value() && result->ok() && (*result)->lease.value() != 0) {
    TestPoint("lease-granted");
  }
  return result;
}
bool Store::reaches_beyond() const { return parts_->beyond != nullptr; }

void Store::AskBeyond(const SessionToken& session, const LookupRequest& request,
                      absl::AnyInvocable<void(bool) &&> asked) {
  if (!request.beyond.asks() || !reaches_beyond()) return std::move(asked)(false);
  parts_->lookups.AskBeyond(session, request, std::move(asked));
}

absl::Status Store::Release(const SessionToken& session, LeaseId lease, uint32_t keep_keys) {
  return parts_->sessions.Release(session, lease, keep_keys);
}
absl::StatusOr<uint64_t> Store::Touch(const SessionToken& session, const ChunkSet& chunks) {
  return parts_->lookups.Touch(session, chunks);
}
bool Store::beyond_is_quiet() const { return parts_->BeyondIsQuiet(); }

bool Store::learning_is_quiet() const { return parts_->learning.is_quiet(); }

absl::StatusOr<PrefetchResult> Store::Prefetch(const SessionToken& session,
                                               const ChunkSet& chunks) {
  absl::StatusOr<PrefetchResult> prefetched = parts_->lookups.Prefetch(session, chunks);
  // Nobody waits for the chunks that come from beyond the node.
  if (prefetched.ok() && reaches_beyond()) parts_->lookups.Recall(session, chunks, [](auto) {});
  return prefetched;
}
void Store::Recall(const SessionToken& session, const ChunkSet& chunks,
                   absl::AnyInvocable<void(absl::StatusOr<uint64_t>) &&> done) {
  parts_->lookups.Recall(session, chunks, std::move(done));
}

absl::StatusOr<uint64_t> Store::Delete(const SessionToken& session, const ChunkSet& chunks) {
  return parts_->deletes.Delete(session, chunks);
}
void Store::WhenDeleted(bool durable, absl::AnyInvocable<void(absl::Status) &&> done) {
  parts_->deletes.WhenDeleted(durable, std::move(done));
}
absl::StatusOr<ReadResult> Store::Read(const SessionToken& session, const ChunkId& id,
                                       LeaseId lease, bool transient) {
  return parts_->reads.Read(session, id, lease, transient);
}
PeerSource::Found Store::LookForPeer(std::span<const ChunkId> ids) {
  return parts_->peer_reads.Look(ids);
}
ReadResult Store::ReadForPeer(const ChunkId& id) { return parts_->peer_reads.Read(id); }
void Store::TakeOffer(std::vector<OfferedChunk> chunks, OfferCallback done) {
  parts_->peer_offers.Take(std::move(chunks), std::move(done));
}
void Store::NameForPeers(const TenantTags& tenants, TakeName take) {
  parts_->peer_reads.NameAll(tenants, take);
}

HotChunks Store::NameHottest(const TenantTags& tenants, size_t most) {
  return parts_->peer_offers.NameHottest(tenants, most);
}
absl::StatusOr<ReserveResult> Store::Reserve(const SessionToken& session,
                                             const PutRequest& request) {
  absl::StatusOr<ReserveResult> reserved = parts_->puts.Reserve(session, request);
  if (Planted(Canary::kVisibleBeforeSealed) && reserved.ok() && reserved->reservation) {
    parts_->puts.Seal(reserved->reservation.id_, request).IgnoreError();
  }
  return reserved;
}
absl::Status Store::ChargeDiscarded(const SessionToken& session, uint64_t bytes, bool within_rate) {
  return parts_->puts.ChargeDiscarded(session, bytes, within_rate);
}
void Store::WhenDurable(const ChunkId& id, absl::AnyInvocable<void(absl::Status) &&> done) {
  parts_->disk.WhenDurable(id, std::move(done));
}
uint64_t Store::Clear(const std::optional<NamespaceDigest>& ns) {
  return parts_->deletes.Clear(ns);
}
std::vector<NamespaceUse> Store::Namespaces() { return parts_->operators.Namespaces(); }
ReuseSnapshot Store::reuse() const { return parts_->reuse.snapshot(parts_->deps.clock->Now()); }
absl::StatusOr<EvictResult> Store::Evict(const EvictRequest& request) {
  return parts_->operators.Evict(request);
}
void Store::ScrubRound(uint64_t bytes_per_second) {
  parts_->operators.ScrubRound(bytes_per_second);
}
void Store::BeginDrain(bool write_remote) { parts_->BeginDrain(write_remote); }
void Store::SyncAll(absl::AnyInvocable<void(absl::Status) &&> done) {
  parts_->disk.SyncAll(std::move(done));
}
bool Store::Tick() { return parts_->Tick(); }
absl::StatusOr<EventReader> Store::Watch(const SessionToken& session, const NamespaceDigest& ns) {
  const absl::StatusOr<uint64_t> id = parts_->watches.Begin(session, ns);
  if (!id.ok()) return id.status();
  EventReader reader;
  reader.watches_ = &parts_->watches;
  reader.id_ = *id;
  return reader;
}
EventReader Store::WatchAll(std::optional<TenantId> tenant) {
  EventReader reader;
  reader.id_ = parts_->watches.BeginAll(tenant);
  reader.watches_ = &parts_->watches;
  return reader;
}
void Store::ReadMetadata(const ChunkId& id,
                         absl::AnyInvocable<void(absl::StatusOr<std::string>) &&> done) {
  parts_->metadata.ReadMetadata(id, std::move(done));
}
StoreSnapshot Store::snapshot() const {
  StoreSnapshot snapshot = parts_->Snapshot();
  // Asks the devices without the lock, as they may look at files. No device is let go of meanwhile.
  MutexLock telling(parts_->disk.leaver.telling());
  const std::vector<NvmeDevice*> attached = parts_->disk.tiers.Attached();
  for (size_t i = 0; i < attached.size(); ++i) {
    NvmeDevice* const nvme = attached[i];
    if (nvme == nullptr) continue;
    DeviceSnapshot& device = snapshot.devices[i];
    device.directory_bytes = nvme->used_directory_bytes();
    if (nvme->times() != nullptr) device.times = DeviceTimesCounts::Of(*nvme->times());
    device.index = nvme->index().stats();
    if (device.index.log_damages > 0 && device.message.empty()) {
      device.message =
          "the index's log was damaged at the start: what was logged behind is lost, durable too";
    }
  }
  return snapshot;
}
uint64_t Store::TakeLongestHoldNs() { return parts_->chunks.TakeLongestHoldNs(); }
void Store::CheckInvariants() const { parts_->CheckInvariants(); }

}  // namespace kvkeep
