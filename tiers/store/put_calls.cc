#include "tiers/store/put_calls.h"

#include <absl/strings/str_cat.h>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/test_point.h"

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

PutCalls::PutCalls(const StoreOptions& options, const StoreDeps& deps, Parts parts)
    : pending(options.tenants.size()),
      chunks_(*parts.chunks),
      tiers_(*parts.tiers),
      records_(*parts.records),
      writes_(*parts.writes),
      learning_(*parts.learning),
      room_(*parts.room),
      sessions_(*parts.sessions),
      reuse_(*parts.reuse),
      beyond_(parts.beyond),
      options_(options),
      deps_(deps) {}

bool PutCalls::Available(const Chunk& chunk, bool durable) const {
  // Its data may be gone from the device. The chunk is written anew, and not read first.
  if (durable && chunk.doubtful) return false;
  // Nobody has promised a chunk that is still on its way from beyond the node.
  if (chunk.recalled && chunk.g2_state == G2State::kReading) return tiers_.InG3(chunk);
  return chunk.in_g2() || chunk.g2_state == G2State::kReading || tiers_.InG3(chunk);
}

void PutCalls::Reject(ReserveResult& result, TenantId tenant, RejectReason reason,
                      std::string message) {
  ++chunks_.counters.puts_rejected;
  ++chunks_.tenant_counters[tenant.value()].puts_rejected;
  result.reason = reason;
  result.message = std::move(message);
}

bool PutCalls::AnsweredAtOnce(const PutRequest& request, const NamespaceSpec& ns, TenantId tenant,
                              ReserveResult& result) {
  const G2Pool& own = chunks_.pool(tenant);
  const uint64_t blocks = request.shape.blocks().value();
  if (absl::Status size = CheckSize(request.shape, ns); !size.ok()) {
    Reject(result, tenant, RejectReason::kWrongSize, std::string(size.message()));
    return true;
  }
  if (chunks_.draining) {
    Reject(result, tenant, RejectReason::kDraining, "the daemon is draining");
    return true;
  }
  const ChunkSlot known = chunks_.table.Find({request.ns, request.key, request.part});
  const bool unsealed = Planted(Canary::kPresentUnsealed) && pending.HasOneOf(blocks);
  if (unsealed || (known != kNoSlot && Available(chunks_.table.at(known), request.durable))) {
    ++chunks_.counters.puts_present;
    result.outcome = ReserveResult::Outcome::kPresent;
    return true;
  }
  const uint64_t reserved = pending.blocks_of(tenant);
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

// A result is large, so it is made and moved without the lock.
absl::StatusOr<ReserveResult> PutCalls::Reserve(const SessionToken& token,
                                                const PutRequest& request) {
  ReserveResult result;
  chunks_.PrefetchFind({request.ns, request.key, request.part});
  KVKEEP_RETURN_IF_ERROR(ReserveSpace(token, request, result));
  if (result.reservation) {
    result.reservation.request_ = request;
    result.reservation.filled_.resize(request.shape.pieces());
  }
  return result;
}

absl::Status PutCalls::ReserveSpace(const SessionToken& token, const PutRequest& request,
                                    ReserveResult& result) {
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(Session * session, sessions_.table.Find(token));
  KVKEEP_RETURN_IF_ERROR(sessions_.table.CheckGrant(*session, &Grants::write));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceSpec* ns, session->FindNamespace(request.ns));
  KVKEEP_RETURN_IF_ERROR(CheckPart(request.part, *ns));
  KVKEEP_RETURN_IF_ERROR(sessions_.table.CheckOwn(*session, request.ns));
  const TenantId tenant = session->tenant();
  G2Pool& own = chunks_.pool(tenant);
  if (absl::Status in_time = sessions_.table.AskRates(*session, true, true); !in_time.ok()) {
    Reject(result, tenant, RejectReason::kLimit, std::string(in_time.message()));
    result.over_rate = true;
    return absl::OkStatus();
  }
  const bool answered_at_once = AnsweredAtOnce(request, *ns, tenant, result);
  if (!result.ask_again) sessions_.table.ChargeKeys(*session, 1);
  if (answered_at_once) return absl::OkStatus();
  const uint64_t blocks = request.shape.blocks().value();
  ChunkSlot parent = kNoSlot;
  if (request.parent.has_value()) {
    parent = chunks_.table.Find({request.ns, *request.parent, request.part});
  }
  std::optional<ExtentList> extents = chunks_.Allocate(section, tenant, blocks, parent);
  if (!extents.has_value()) {
    Reject(result, tenant, RejectReason::kNoSpace,
           absl::StrCat("no ", blocks * kBlockBytes, " bytes of G2 can be freed now: of ",
                        own.capacity_blocks() * kBlockBytes,
                        " all else is leased, in flight or dirty"));
    return absl::OkStatus();
  }
  if (section.yields() > 0) {  // much may have changed meanwhile
    const absl::StatusOr<Session*> again = sessions_.table.Find(token);
    const bool answered =
        !again.ok() || AnsweredAtOnce(request, (*again)->namespaces.at(request.ns), tenant, result);
    if (answered) own.Free(*extents);
    if (!again.ok()) return again.status();
    if (answered) return absl::OkStatus();
    session = *again;
  }

  const PendingPut put{.session = token,
                       .tenant = tenant,
                       .generation = chunks_.NextGeneration(),
                       .extents = *std::move(extents),
                       .blocks = blocks};
  result.outcome = ReserveResult::Outcome::kReserved;
  result.reservation.puts_ = this;
  result.reservation.id_ = pending.Begin(put);
  result.reservation.generation_ = put.generation;
  result.reservation.extents_ = put.extents;
  sessions_.table.ChargeBytes(session->tenant(), request.shape.payload_bytes);
  return absl::OkStatus();
}

absl::Status PutCalls::ChargeDiscarded(const SessionToken& token, uint64_t bytes,
                                       bool within_rate) {
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(Session * session, sessions_.table.Find(token));
  if (!within_rate) {
    KVKEEP_RETURN_IF_ERROR(sessions_.table.AskRates(*session, /*keys=*/false, /*bytes=*/true));
  }
  sessions_.table.ChargeBytes(session->tenant(), bytes);
  return absl::OkStatus();
}

void PutCalls::Abort(uint64_t reservation) {
  Section section(&chunks_);
  const PendingPut put = pending.End(reservation);
  chunks_.pool(put.tenant).Free(put.extents);
  ++chunks_.counters.puts_aborted;
}

absl::StatusOr<SealOutcome> PutCalls::Seal(uint64_t reservation, const PutRequest& request) {
  TestPoint("seal");
  ReuseMeter::Note note(&reuse_);
  const ChunkId id{request.ns, request.key, request.part};
  // The payload has evicted this memory from the CPU's caches.
  chunks_.PrefetchFind(id);
  if (!request.no_g3) tiers_.PrefetchAll();
  Section section(&chunks_);
  G2Pool& own = chunks_.pool(pending.at(reservation).tenant);
  ChunkSlot known = chunks_.table.Find(id);
  const bool present = known != kNoSlot && Available(chunks_.table.at(known), request.durable);
  if (chunks_.table.full() && !present && sessions_.table.IsOpen(pending.at(reservation).session)) {
    // This yields, so everything is looked up again.
    room_.MakeRoomInTable(section, pending.at(reservation).tenant);
  }
  PendingPut put = pending.End(reservation);
  const auto give_up = [&](absl::Status why) STORE_LOCKED {
    own.Free(put.extents);
    ++chunks_.counters.puts_aborted;
    return why;
  };
  if (!sessions_.table.IsOpen(put.session)) {
    return give_up(absl::FailedPreconditionError("the session was closed during the put"));
  }
  known = chunks_.table.Find(id);
  if (known != kNoSlot) {
    if (Available(chunks_.table.at(known), request.durable)) {  // another writer won
      own.Free(put.extents);
      if (Planted(Canary::kDoubleFree)) own.Free(put.extents);
      ++chunks_.counters.puts_present;
      return SealOutcome::kPresent;
    }
    const Chunk& old = chunks_.table.at(known);  // Replace frees its slot, unless it is in use
    const bool stays = old.in_use() || old.g3_reading;
    if (chunks_.table.full() && stays) return give_up(TableFull(options_));
    records_.Replace(known);  // the old one is lost, in doubt or out of reach
  }
  if (chunks_.table.full()) return give_up(TableFull(options_));
  const ChunkSlot slot = chunks_.Create(id, request.shape);
  KVKEEP_CHECK(slot != kNoSlot && put.blocks == request.shape.blocks().value());
  {
    Change chunk(&chunks_, slot);
    chunks_.GiveCopy(*chunk, put.tenant, std::move(put.extents), G2State::kResident);
    chunks_.marks.Set(chunk->g2, chunks_.incarnation(), put.generation);
    chunk->transient = request.transient;
    chunks_.InsertIntoPolicy(slot, chunks_.table.FindParent(*chunk, request.parent));
  }
  note.Stored(chunks_.table.fingerprint(id), chunks_.table.at(slot).blocks() * kBlockBytes);
  ++chunks_.counters.puts_stored;
  chunks_.counters.put_bytes += request.shape.payload_bytes;
  learning_.AfterPut();
  TestPoint("sealed");
  if (!request.no_g3) {
    writes_.Queue(slot, request.parent, request.durable);
  }
  if (beyond_ != nullptr) beyond_->changes.OfferPut(slot, request.parent, !request.no_g3);
  return SealOutcome::kStored;
}

}  // namespace kvkeep::store_internal
