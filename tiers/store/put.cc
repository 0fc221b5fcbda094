// Puts: space reserved in G2, then published.
#include <absl/strings/str_cat.h>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/test_point.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {
namespace {

absl::Status CheckSize(const ImageShape& shape, const NamespaceSpec& ns) {
  absl::Status valid = ValidateShape(shape);
  if (valid.ok() && ns.bytes_per_part != 0 && shape.payload_bytes != ns.bytes_per_part) {
    valid = absl::InvalidArgumentError(absl::StrCat("payload_bytes is ", shape.payload_bytes,
                                                    ", the namespace's bytes_per_part is ",
                                                    ns.bytes_per_part));
  }
  return valid;
}

absl::Status CheckPart(PartId part, const NamespaceSpec& ns) {
  if (part.value() < ns.parts) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("part is ", part.value(), ", the namespace has ", ns.parts));
}

absl::Status TableFull(const StoreOptions& options) {
  return absl::ResourceExhaustedError(
      absl::StrCat("max_chunks: all ", options.max_chunks, " are in use"));
}

}  // namespace

bool Core::Available(const Chunk& chunk, bool durable) const {
  // Its data may be gone from the device: rather than read it first, it is written anew.
  if (durable && chunk.doubtful) return false;
  // On its way from beyond the node, where nobody promised it.
  if (chunk.recalled && chunk.g2_state == G2State::kReading) return disk_.tiers.InG3(chunk);
  return chunk.in_g2() || chunk.g2_state == G2State::kReading || disk_.tiers.InG3(chunk);
}

Evicted Core::ForgetOne(TenantId tenant, bool of_g3) {
  for (const auto& tier : disk_.tiers.all()) {
    if (!of_g3) break;
    const Evicted evicted = disk_.space.EvictOne(*tier, tenant);
    if (evicted != Evicted::kNone) return evicted;
  }
  if (tenant == slot_shares_.nobody()) return Evicted::kNone;
  return chunks_.EvictOne(pool(tenant));
}

// Forgets whole chunks, the least valuable of G3 first, until a slot is free: of who has the most
// above its share of the table.
bool Core::MakeRoomInTable(Section& section, TenantId tenant) {
  constexpr int kMostVictims = 64;  // G3 victims that stay because G2 holds them too
  int victims = 0;
  const auto can_give = [&](TenantId t) STORE_LOCKED {
    if (victims < kMostVictims && disk_.tiers.CanGive(t)) return true;
    return t != slot_shares_.nobody() && pool(t).policy->Victim().has_value();
  };
  while (table_.full()) {
    // Whoever turns out to have nothing that can go is not asked again.
    const std::optional<TenantId> from = slot_shares_.ChooseDonor(tenant, 1, can_give);
    if (!from.has_value()) break;
    const bool of_g3 = victims < kMostVictims;
    if (ForgetOne(*from, of_g3) == Evicted::kOne) {
      victims += of_g3;
      tenant_counters_[from->value()].forgotten += *from != tenant;
    }
    section.YieldIfSpent();
  }
  return !table_.full();
}

void Core::Reject(ReserveResult& result, TenantId tenant, RejectReason reason,
                  std::string message) {
  ++counters_.puts_rejected;
  ++tenant_counters_[tenant.value()].puts_rejected;
  result.reason = reason;
  result.message = std::move(message);
}

bool Core::AnsweredAtOnce(const PutRequest& request, const NamespaceSpec& ns, TenantId tenant,
                          ReserveResult& result) {
  const G2Pool& own = pool(tenant);
  const uint64_t blocks = request.shape.blocks().value();
  if (absl::Status size = CheckSize(request.shape, ns); !size.ok()) {
    Reject(result, tenant, RejectReason::kWrongSize, std::string(size.message()));
    return true;
  }
  if (chunks_.draining) {
    Reject(result, tenant, RejectReason::kDraining, "the daemon is draining");
    return true;
  }
  const ChunkSlot known = table_.Find({request.ns, request.key, request.part});
  const bool unsealed = Planted(Canary::kPresentUnsealed) && puts_.HasOneOf(blocks);
  if (unsealed || (known != kNoSlot && Available(table_.at(known), request.durable))) {
    ++counters_.puts_present;
    result.outcome = ReserveResult::Outcome::kPresent;
    return true;
  }
  const uint64_t reserved = puts_.blocks_of(tenant);
  if (reserved + blocks > own.limits.reserved_blocks) {
    if (request.asks_again && blocks <= own.limits.reserved_blocks) {  // it may fit later
      result.reason = RejectReason::kLimit;
      result.ask_again = true;
      return true;
    }
    Reject(result, tenant, RejectReason::kLimit,
           absl::StrCat("puts in progress hold ", reserved * kBlockBytes,
                        " bytes, allowed are at most ", own.limits.reserved_blocks * kBlockBytes));
    return true;
  }
  return false;
}

absl::StatusOr<ReserveResult> Core::Reserve(const SessionToken& token, const PutRequest& request) {
  ReserveResult result;
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(Session * session, sessions_.Find(token));
  KVKEEP_RETURN_IF_ERROR(sessions_.CheckGrant(*session, &Grants::write));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceSpec* ns, session->FindNamespace(request.ns));
  KVKEEP_RETURN_IF_ERROR(CheckPart(request.part, *ns));
  KVKEEP_RETURN_IF_ERROR(sessions_.CheckOwn(*session, request.ns));
  const TenantId tenant = session->tenant();
  G2Pool& own = pool(tenant);
  if (absl::Status in_time = sessions_.AskRates(*session, true, true); !in_time.ok()) {
    Reject(result, tenant, RejectReason::kLimit, std::string(in_time.message()));
    result.over_rate = true;
    return result;
  }
  const bool answered_at_once = AnsweredAtOnce(request, *ns, tenant, result);
  if (!result.ask_again) sessions_.ChargeKeys(*session, 1);
  if (answered_at_once) return result;
  const uint64_t blocks = request.shape.blocks().value();
  ChunkSlot parent = kNoSlot;
  if (request.parent.has_value()) {
    parent = table_.Find({request.ns, *request.parent, request.part});
  }
  std::optional<ExtentList> extents = chunks_.Allocate(section, tenant, blocks, parent);
  if (!extents.has_value()) {
    Reject(result, tenant, RejectReason::kNoSpace,
           absl::StrCat("no ", blocks * kBlockBytes, " bytes of G2 can be freed now: of ",
                        own.capacity_blocks() * kBlockBytes,
                        " all else is leased, in flight or dirty"));
    return result;
  }
  if (section.yields() > 0) {  // much may have come in between
    const absl::StatusOr<Session*> again = sessions_.Find(token);
    const bool answered =
        !again.ok() || AnsweredAtOnce(request, (*again)->namespaces.at(request.ns), tenant, result);
    if (answered) own.Free(*extents);
    if (!again.ok()) return again.status();
    if (answered) return result;
    session = *again;
  }

  const PendingPut put{.session = token,
                       .tenant = tenant,
                       .generation = chunks_.NextGeneration(),
                       .extents = *std::move(extents),
                       .blocks = blocks};
  result.outcome = ReserveResult::Outcome::kReserved;
  BeginPut(put, request, &result.reservation);
  sessions_.ChargeBytes(session->tenant(), request.shape.payload_bytes);
  return result;
}

absl::Status Core::ChargeDiscarded(const SessionToken& token, uint64_t bytes, bool within_rate) {
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(Session * session, sessions_.Find(token));
  if (!within_rate) {
    KVKEEP_RETURN_IF_ERROR(sessions_.AskRates(*session, /*keys=*/false, /*bytes=*/true));
  }
  sessions_.ChargeBytes(session->tenant(), bytes);
  return absl::OkStatus();
}

void Core::BeginPut(const PendingPut& put, const PutRequest& request, Reservation* reservation) {
  reservation->core_ = this;
  reservation->id_ = puts_.Begin(put);
  reservation->request_ = request;
  reservation->generation_ = put.generation;
  reservation->extents_ = put.extents;
  reservation->filled_.resize(request.shape.pieces());
}

void Core::AbortPut(uint64_t reservation) {
  Section section(&chunks_);
  const PendingPut put = puts_.End(reservation);
  pool(put.tenant).Free(put.extents);
  ++counters_.puts_aborted;
}

absl::StatusOr<SealOutcome> Core::Seal(uint64_t reservation, const PutRequest& request) {
  TestPoint("seal");
  ReuseMeter::Note note(&reuse_);
  Section section(&chunks_);
  const ChunkId id{request.ns, request.key, request.part};
  G2Pool& own = pool(puts_.at(reservation).tenant);
  ChunkSlot known = table_.Find(id);
  const bool present = known != kNoSlot && Available(table_.at(known), request.durable);
  if (table_.full() && !present && sessions_.IsOpen(puts_.at(reservation).session)) {
    MakeRoomInTable(section, puts_.at(reservation).tenant);  // in slices, so all is looked up again
  }
  PendingPut put = puts_.End(reservation);
  const auto give_up = [&](absl::Status why) STORE_LOCKED {
    own.Free(put.extents);
    ++counters_.puts_aborted;
    return why;
  };
  if (!sessions_.IsOpen(put.session)) {
    return give_up(absl::FailedPreconditionError("the session was closed during the put"));
  }
  known = table_.Find(id);
  if (known != kNoSlot) {
    if (Available(table_.at(known), request.durable)) {  // another writer won
      own.Free(put.extents);
      if (Planted(Canary::kDoubleFree)) own.Free(put.extents);
      ++counters_.puts_present;
      return SealOutcome::kPresent;
    }
    const Chunk& old = table_.at(known);  // its slot is free then, unless it is still read
    if (table_.full() && (old.in_use() || old.g3_reading)) return give_up(TableFull(options_));
    disk_.records.Replace(known);  // lost, in doubt or out of reach: the new one is sure
  }
  if (table_.full()) return give_up(TableFull(options_));
  const ChunkSlot slot = chunks_.Create(id, request.shape);
  KVKEEP_CHECK(slot != kNoSlot && put.blocks == request.shape.blocks().value());
  {
    Change chunk(&chunks_, slot);
    KVKEEP_CHECK(chunk->tenant == put.tenant);  // in whose pool the space is
    chunk->g2 = std::move(put.extents);
    chunks_.SetG2State(*chunk, G2State::kResident);
    marks_.Set(chunk->g2, incarnation_, put.generation);
    chunk->transient = request.transient;
    chunks_.InsertIntoPolicy(slot, table_.FindParent(*chunk, request.parent));
  }
  note.Stored(table_.fingerprint(id), table_.at(slot).blocks() * kBlockBytes);
  ++counters_.puts_stored;
  counters_.put_bytes += request.shape.payload_bytes;
  TestPoint("sealed");
  if (!request.no_g3) {
    disk_.writes.Queue(slot, request.parent, request.durable);
  }
  if (beyond_ != nullptr) beyond_->OfferPut(slot, request.parent, !request.no_g3);
  return SealOutcome::kStored;
}

}  // namespace kvkeep::store_internal
