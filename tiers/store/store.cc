#include "tiers/store/store.h"

#include <absl/container/btree_map.h>
#include <absl/strings/str_cat.h>

#include <bit>
#include <cstring>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/base/test_point.h"
#include "tiers/store/core.h"

namespace kvkeep {

using store_internal::Core;

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
    return absl::InvalidArgumentError(
        absl::StrCat("max_chunks is ", max_chunks, ", allowed are 1 to ",
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

// ---------------------------------------------------------------- ChunkReader

ChunkReader::ChunkReader(ChunkReader&& other) noexcept { *this = std::move(other); }

ChunkReader& ChunkReader::operator=(ChunkReader&& other) noexcept {
  if (core_ != nullptr) core_->Unpin(ChunkSlot(slot_), lent_);
  core_ = std::exchange(other.core_, nullptr);
  slot_ = other.slot_;
  lent_ = other.lent_;
  shape_ = other.shape_;
  extents_ = std::move(other.extents_);
  return *this;
}

ChunkReader::~ChunkReader() {
  if (core_ != nullptr) core_->Unpin(ChunkSlot(slot_), lent_);
}

void ChunkReader::WhenReady(size_t first, size_t count,
                            absl::AnyInvocable<void(absl::Status) &&> ready) {
  core_->filler().WhenReady(ChunkSlot(slot_), first, count, std::move(ready));
}

std::span<const std::byte> ChunkReader::Payload(uint64_t offset, uint64_t bytes) const {
  KVKEEP_CHECK(offset <= shape_.payload_bytes && bytes <= shape_.payload_bytes - offset);
  return core_->chunks().ImageMemory(extents_, kHeaderBytes + offset, bytes);
}

std::vector<uint64_t> ChunkReader::PieceChecksums() const {
  return core_->filler().PieceChecksums(ChunkSlot(slot_), extents_);
}

std::string ChunkReader::Metadata() const {
  std::string metadata;
  while (metadata.size() < shape_.tail_bytes) {
    const auto run = core_->chunks().ImageMemory(extents_, shape_.tail_offset() + metadata.size(),
                                        shape_.tail_bytes - metadata.size());
    metadata.append(reinterpret_cast<const char*>(run.data()), run.size());
  }
  return metadata;
}

// ---------------------------------------------------------------- Reservation

Reservation::Reservation(Reservation&& other) noexcept { *this = std::move(other); }

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  Abort();
  core_ = std::exchange(other.core_, nullptr);
  id_ = other.id_;
  request_ = std::move(other.request_);
  generation_ = other.generation_;
  extents_ = std::move(other.extents_);
  copier_ = std::move(other.copier_);
  filled_ = std::move(other.filled_);
  return *this;
}

Reservation::~Reservation() { Abort(); }

void Reservation::Abort() {
  if (Planted(Canary::kVisibleBeforeSealed)) core_ = nullptr;
  if (core_ != nullptr) std::exchange(core_, nullptr)->AbortPut(id_);
}

std::span<std::byte> Reservation::ImageAt(uint64_t offset, uint64_t bytes) const {
  return core_->chunks().ImageMemory(extents_, offset, bytes);
}

void Reservation::Append(std::span<const std::byte> bytes) {
  KVKEEP_CHECK(copier_.bytes() + bytes.size() <= shape().payload_bytes);
  CopyTo(0, bytes, &copier_, &PayloadCopier::Append);
}

void Reservation::CopyTo(uint64_t begin, std::span<const std::byte> bytes, PayloadCopier* copier,
                         AppendBy append) {
  while (!bytes.empty()) {
    const auto to = ImageAt(kHeaderBytes + begin + copier->bytes(), bytes.size());
    (copier->*append)(to.data(), bytes.first(to.size()));
    bytes = bytes.subspan(to.size());
  }
}

absl::Status Reservation::FillPiece(size_t piece, ReadPayload read) {
  KVKEEP_CHECK(piece < filled_.size() && !filled_[piece].filled);
  const uint64_t begin = piece * kPieceBytes;
  const uint64_t bytes = PieceSize(shape().payload_bytes, piece);
  PayloadCopier copier;
  absl::Status status = read(begin, bytes, [&](std::span<const std::byte> run) {
    KVKEEP_CHECK(run.size() <= bytes - copier.bytes());
    CopyTo(begin, run, &copier, &PayloadCopier::AppendShared);
  });
  if (!status.ok()) return status;
  KVKEEP_CHECK(copier.bytes() == bytes);
  filled_[piece] = {.checksum = copier.Finish().front(), .filled = true};
  return absl::OkStatus();
}

void Reservation::ChecksumPiece(size_t piece) {
  KVKEEP_CHECK(piece < filled_.size() && !filled_[piece].filled);
  const uint64_t begin = piece * kPieceBytes;
  filled_[piece] = {.checksum = Checksum(begin, begin + PieceSize(shape().payload_bytes, piece)),
                    .filled = true};
}

uint64_t Reservation::Checksum(uint64_t begin, uint64_t end) const {
  Xxh3Stream checksum;
  while (begin < end) {
    const auto run = ImageAt(kHeaderBytes + begin, end - begin);
    checksum.Append(run);
    begin += run.size();
  }
  return checksum.Digest();
}

uint64_t Reservation::PayloadChecksum() const { return Checksum(0, shape().payload_bytes); }

absl::StatusOr<SealOutcome> Reservation::Seal(std::span<const std::byte> metadata) {
  KVKEEP_CHECK(metadata.size() == shape().tail_bytes);
  std::vector<uint64_t> checksums;
  if (copier_.bytes() > 0) {
    KVKEEP_CHECK(copier_.bytes() == shape().payload_bytes);
    checksums = copier_.Finish();
  } else {
    for (const FilledPiece& piece : filled_) {
      KVKEEP_CHECK(piece.filled);
      checksums.push_back(piece.checksum);
    }
  }
  const auto fill = [this](uint64_t begin, uint64_t end, const std::byte* from) {
    while (begin < end) {
      const std::span<std::byte> to = ImageAt(begin, end - begin);
      if (from != nullptr) {
        std::memcpy(to.data(), from, to.size());
        from += to.size();
      } else {
        std::memset(to.data(), 0, to.size());
      }
      begin += to.size();
    }
  };
  // Nothing of an earlier owner of these blocks may stay readable behind the payload.
  const uint64_t payload_end = kHeaderBytes + uint64_t{shape().payload_bytes};
  fill(payload_end, shape().blocks().value() * kBlockBytes, nullptr);
  if (!metadata.empty()) {
    fill(shape().tail_offset(), shape().tail_offset() + metadata.size(), metadata.data());
  }
  const ImageIdentity identity{.id = {request_.ns, request_.key, request_.part},
                               .shape = shape(),
                               .created_unix_us = core_->deps().clock->UnixMicros(),
                               .tail_checksum = Xxh3(metadata),
                               .piece_checksums = std::move(checksums)};
  const store_internal::Chunks& chunks = core_->chunks();
  EncodeHeader({identity, chunks.PlacementOf(generation_, extents_)}, core_->deps().mac_key,
               chunks.HeaderInArena(extents_));
  if (Planted(Canary::kVisibleBeforeSealed)) {
    core_ = nullptr;
    return SealOutcome::kStored;
  }
  return std::exchange(core_, nullptr)->Seal(id_, request_);
}

// ---------------------------------------------------------------- Store: the core's front

Store::Store(std::unique_ptr<Core> core) : core_(std::move(core)) {}
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
  KVKEEP_CHECK(deps.remote == nullptr || deps.remote_keys != nullptr);
  auto core = std::make_unique<Core>(options, deps);
  absl::Status recovered = core->Recover();
  if (!recovered.ok()) return recovered;
  return std::unique_ptr<Store>(new Store(std::move(core)));
}

Incarnation Store::incarnation() const { return core_->incarnation(); }
StoreOptions Store::options() const { return core_->options(); }
absl::Status Store::SetLimits(const StoreOptions& options) { return core_->SetLimits(options); }
void Store::AddMemory(const std::vector<Extent>& extents) { core_->AddMemory(extents); }

void Store::Attach(size_t device, const StoreDeps::DeviceDeps& deps,
                   absl::AnyInvocable<void(absl::Status) &&> done) {
  core_->disk().joiner.Attach(device, deps, std::move(done));
}

void Store::NotComing(size_t device) { core_->disk().tiers.NotComing(device); }

std::optional<DeviceState> Store::StateOfAnswering(size_t device) const {
  return core_->disk().tiers.StateOfAnswering(device);
}

void Store::Detach(size_t device, absl::AnyInvocable<void(absl::Status) &&> done) {
  core_->disk().leaver.Detach(device, std::move(done));
}

absl::StatusOr<SessionToken> Store::OpenSession(const SessionInfo& info) {
  return core_->OpenSession(info);
}
void Store::CloseSession(const SessionToken& session) { core_->CloseSession(session, false); }
void Store::RevokeSession(const SessionToken& session) { core_->CloseSession(session, true); }
absl::StatusOr<NamespaceDigest> Store::OpenNamespace(const SessionToken& session,
                                                     const NamespaceSpec& spec) {
  return core_->OpenNamespace(session, spec);
}
std::vector<ForeignRead> Store::TakeForeignReads() { return core_->TakeForeignReads(); }

absl::StatusOr<TenantId> Store::TenantOf(const SessionToken& session) const {
  return core_->TenantOf(session);
}
absl::StatusOr<NamespaceSpec> Store::FindNamespace(const SessionToken& session,
                                                   const NamespaceDigest& ns) const {
  return core_->FindNamespace(session, ns);
}
uint32_t Store::TokensPerChunk(const NamespaceDigest& ns) const {
  return core_->TokensPerChunk(ns);
}
absl::StatusOr<LookupResult> Store::Lookup(const SessionToken& session,
                                           const LookupRequest& request) {
  return *LookupOrSearch(session, request, nullptr);
}
std::optional<absl::StatusOr<LookupResult>> Store::LookupOrSearch(
    const SessionToken& session, const LookupRequest& request,
    absl::AnyInvocable<void() &&> searched) {
  if (!request.beyond.asks() || !reaches_beyond()) searched = nullptr;
  auto result = core_->LookupOrSearch(session, request, std::move(searched));
  if (result.has_value() && result->ok() && (*result)->lease.value() != 0) {
    TestPoint("lease-granted");
  }
  return result;
}
bool Store::reaches_beyond() const { return core_->reaches_beyond(); }

void Store::AskBeyond(const SessionToken& session, const LookupRequest& request,
                      absl::AnyInvocable<void(bool) &&> asked) {
  if (!request.beyond.asks() || !reaches_beyond()) return std::move(asked)(false);
  core_->AskBeyond(session, request, std::move(asked));
}

absl::Status Store::Release(const SessionToken& session, LeaseId lease, uint32_t keep_keys) {
  return core_->Release(session, lease, keep_keys);
}
absl::StatusOr<uint64_t> Store::Touch(const SessionToken& session, const ChunkSet& chunks) {
  return core_->Touch(session, chunks);
}
bool Store::beyond_is_quiet() const { return core_->BeyondIsQuiet(); }

absl::StatusOr<PrefetchResult> Store::Prefetch(const SessionToken& session,
                                               const ChunkSet& chunks) {
  absl::StatusOr<PrefetchResult> prefetched = core_->Prefetch(session, chunks);
  // What is not here comes when it comes: nobody waits for it.
  if (prefetched.ok() && core_->reaches_beyond()) core_->Recall(session, chunks, [](auto) {});
  return prefetched;
}
void Store::Recall(const SessionToken& session, const ChunkSet& chunks,
                   absl::AnyInvocable<void(absl::StatusOr<uint64_t>) &&> done) {
  core_->Recall(session, chunks, std::move(done));
}

absl::StatusOr<uint64_t> Store::Delete(const SessionToken& session, const ChunkSet& chunks) {
  return core_->Delete(session, chunks);
}
void Store::WhenDeleted(bool durable, absl::AnyInvocable<void(absl::Status) &&> done) {
  core_->WhenDeleted(durable, std::move(done));
}
absl::StatusOr<ReadResult> Store::Read(const SessionToken& session, const ChunkId& id,
                                       LeaseId lease, bool transient) {
  return core_->Read(session, id, lease, transient);
}
absl::StatusOr<ReserveResult> Store::Reserve(const SessionToken& session,
                                             const PutRequest& request) {
  absl::StatusOr<ReserveResult> reserved = core_->Reserve(session, request);
  if (Planted(Canary::kVisibleBeforeSealed) && reserved.ok() && reserved->reservation) {
    core_->Seal(reserved->reservation.id_, request).IgnoreError();
  }
  return reserved;
}
absl::Status Store::ChargeDiscarded(const SessionToken& session, uint64_t bytes, bool within_rate) {
  return core_->ChargeDiscarded(session, bytes, within_rate);
}
void Store::WhenDurable(const ChunkId& id, absl::AnyInvocable<void(absl::Status) &&> done) {
  core_->disk().WhenDurable(id, std::move(done));
}
uint64_t Store::Clear(const std::optional<NamespaceDigest>& ns) { return core_->Clear(ns); }
std::vector<NamespaceUse> Store::Namespaces() { return core_->Namespaces(); }
ReuseSnapshot Store::reuse() const { return core_->Reuse(); }
absl::StatusOr<EvictResult> Store::Evict(const EvictRequest& request) {
  return core_->EvictSome(request);
}
void Store::ScrubRound(uint64_t bytes_per_second) { core_->ScrubRound(bytes_per_second); }
void Store::BeginDrain(bool write_remote) { core_->BeginDrain(write_remote); }
void Store::SyncAll(absl::AnyInvocable<void(absl::Status) &&> done) {
  core_->disk().SyncAll(std::move(done));
}
bool Store::Tick() { return core_->Tick(); }
absl::StatusOr<EventReader> Store::Watch(const SessionToken& session, const NamespaceDigest& ns) {
  const absl::StatusOr<uint64_t> id = core_->BeginEvents(session, ns);
  if (!id.ok()) return id.status();
  EventReader reader;
  reader.core_ = core_.get();
  reader.id_ = *id;
  return reader;
}
EventReader Store::WatchAll(std::optional<TenantId> tenant) {
  EventReader reader;
  reader.id_ = core_->BeginAllEvents(tenant);
  reader.core_ = core_.get();
  return reader;
}
void Store::ReadMetadata(const ChunkId& id,
                         absl::AnyInvocable<void(absl::StatusOr<std::string>) &&> done) {
  core_->ReadMetadata(id, std::move(done));
}
StoreSnapshot Store::snapshot() const {
  StoreSnapshot snapshot = core_->Snapshot();
  // Asked outside the lock: it may look at files. No device is let go of meanwhile.
  MutexLock telling(core_->disk().leaver.telling());
  const std::vector<NvmeDevice*> attached = core_->disk().tiers.Attached();
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
uint64_t Store::TakeLongestHoldNs() { return core_->chunks().TakeLongestHoldNs(); }
void Store::CheckInvariants() const { core_->CheckInvariants(); }

}  // namespace kvkeep
