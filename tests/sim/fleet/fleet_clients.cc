// Actions of the clients of a simulated fleet, and the answers that they may get.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstdio>

#include "tests/sim/fleet/fleet_simulator.h"
#include "tiers/base/check.h"
#include "tiers/base/tenant_tag.h"

namespace kvkeep {

std::vector<PartId> FleetSimulator::Parts() const {
  std::vector<PartId> parts;
  for (uint32_t part = 0; part < fleet_.parts; ++part) parts.push_back(PartId(part));
  return parts;
}

ImageShape FleetSimulator::RandomShape() {
  ImageShape shape;
  const uint64_t kind = random_.Below(100);
  if (kind < 50) {
    shape.payload_bytes = 20'000;  // as where all chunks of a namespace have one size
  } else if (kind < 97) {
    shape.payload_bytes = static_cast<uint32_t>(random_.Between(1, 100'000));
  } else {
    shape.payload_bytes = static_cast<uint32_t>(random_.Between(kPieceBytes, kPieceBytes + 90'000));
  }
  shape.tail_bytes = random_.Chance(0.3) ? static_cast<uint32_t>(random_.Between(1, 2000)) : 0;
  return shape;
}

void FleetSimulator::Connect(Member& member) {
  Store& store = member.node->store();
  member.token = *store.OpenSession({.client_name = "sim", .tenant = TenantId(0)});
  member.ns = *store.OpenNamespace(
      member.token, {.model = "fleet", .tokens_per_chunk = 16, .parts = fleet_.parts});
}

void FleetSimulator::LetGo(Member& member) {
  member.readers.clear();
  member.leases.clear();
}

void FleetSimulator::NoteRecalled(Member& member, uint64_t first, size_t keys) {
  for (uint64_t key = first; key < first + keys; ++key) {
    for (uint32_t part = 0; part < fleet_.parts; ++part) {
      member.recalled.insert(Name(member, key, part));
    }
  }
}

void FleetSimulator::DoLookup(Member& member) {
  // Prompts: from the head of one of two chains on.
  const uint64_t first = random_.Chance(0.9) ? random_.Below(2) * 32 : random_.Below(kNames);
  const uint64_t length = random_.Between(1, kNames - first);
  std::vector<ChunkKey> keys;
  for (uint64_t key = first; key < first + length; ++key) keys.push_back(MakeKey(key));
  const std::vector<PartId> parts = Parts();
  const LookupRequest request{.chunks = {member.ns, keys, parts},
                              .lease_mode = static_cast<LeaseMode>(random_.Below(3)),
                              .transient = random_.Chance(0.1)};
  ++report_.operations;
  if (random_.Chance(0.5)) return LookupBeyond(member, request, first, std::move(keys));
  const absl::StatusOr<LookupResult> result = member.node->store().Lookup(member.token, request);
  KVKEEP_CHECK(result.ok() || absl::IsResourceExhausted(result.status()));
  if (!result.ok()) return;
  Log(member, absl::StrCat("lookup ", first, "+", length, " leading ", result->leading_keys));
  KVKEEP_CHECK(result->beyond_keys == 0 && result->coming_parts.empty());
  MixLocal(result->leading_keys * kNames + result->leased_keys);
  NoteLease(member, first, *result);
}

void FleetSimulator::LookupBeyond(Member& member, LookupRequest request, uint64_t first,
                                  std::vector<ChunkKey> keys) {
  ++report_.recalls;
  const auto wait = std::chrono::milliseconds(random_.Below(100));
  request.beyond = {.wait = wait,
                    .recompute_per_key = std::chrono::microseconds(
                        random_.Chance(0.5) ? 0 : random_.Below(100'000))};
  NoteRecalled(member, first, keys.size());
  const auto kept = std::make_shared<const std::vector<ChunkKey>>(std::move(keys));
  const auto parts = std::make_shared<const std::vector<PartId>>(Parts());
  request.chunks = {member.ns, *kept, *parts};
  Log(member, absl::StrCat("lookup beyond ", first, "+", kept->size()));
  ++member.due;
  const MonotonicTime by = member.node->now() + wait;
  member.answer_by.insert(by);
  const auto take = [this, &member, first, kept, parts, by, process = member.process](
                        const absl::StatusOr<LookupResult>& result) {
    KVKEEP_CHECK(process == member.process && member.due > 0);
    --member.due;
    member.answer_by.erase(member.answer_by.find(by));
    KVKEEP_CHECK(result.ok() || absl::IsResourceExhausted(result.status()));
    if (!result.ok()) return;
    KVKEEP_CHECK(result->leading_keys + result->beyond_keys <= kept->size());
    report_.came_from_others += result->beyond_keys;
    NoteLease(member, first, *result);
  };
  LookupRequest again = request;
  again.after_search = true;
  const auto result = member.node->store().LookupOrSearch(
      member.token, request,
      [&member, take, again] { take(member.node->store().Lookup(member.token, again)); });
  if (result.has_value()) take(*result);
}

// Chunks on the node are promised; chunks that are coming are not.
void FleetSimulator::NoteLease(Member& member, uint64_t first, const LookupResult& result) {
  if (result.lease.value() == 0) return;
  HeldLease held{.id = result.lease, .keys = result.leased_keys};
  for (uint32_t i = 0; i < result.leased_keys; ++i) {
    for (uint32_t p = 0; p < fleet_.parts; ++p) {
      const bool here = ((result.g2_parts[i] | result.g3_parts[i]) >> p & 1) != 0;
      const bool coming = !result.coming_parts.empty() && (result.coming_parts[i] >> p & 1) != 0;
      const uint64_t name = Name(member, first + i, p);
      if (here || coming) held.names[name] = i;
      if (!here && coming) held.unsure.insert(name);
    }
  }
  member.leases.push_back(std::move(held));
}

void FleetSimulator::DoRead(Member& member) {
  ++report_.operations;
  uint64_t name = Name(member, random_.Below(kNames),
                       static_cast<uint32_t>(random_.Below(fleet_.parts)));
  LeaseId lease(0);
  bool promised = false;
  if (!member.leases.empty() && random_.Chance(0.7)) {
    const HeldLease& held = member.leases[random_.Below(member.leases.size())];
    lease = held.id;
    if (!held.names.empty()) {
      const auto steps = static_cast<ptrdiff_t>(random_.Below(held.names.size()));
      name = std::next(held.names.begin(), steps)->first;
      promised = !held.unsure.contains(name);
    }
  }
  absl::StatusOr<ReadResult> read =
      member.node->store().Read(member.token, Id(member, name), lease, random_.Chance(0.1));
  KVKEEP_CHECK(read.ok());
  ++report_.reads;
  Log(member, absl::StrCat("read ", name, " outcome ", static_cast<int>(read->outcome)));
  MixLocal(name * 4 + static_cast<uint64_t>(read->outcome));
  KVKEEP_CHECK(!promised || read->outcome == ReadOutcome::kHit);
  StartRead(member, name, *std::move(read), promised);
}

// `must`: it may not fail, whatever the bucket does.
void FleetSimulator::StartRead(Member& member, uint64_t name, ReadResult read, bool must) {
  if (read.outcome != ReadOutcome::kHit) return;
  ++report_.hits;
  auto held = std::make_shared<HeldReader>();
  held->name = name;
  held->reader = std::move(read.reader);
  held->must = must && !member.recalled.contains(name);
  held->pieces_left = held->reader.shape().pieces();
  member.readers.push_back(held);
  for (size_t piece = 0; piece < held->reader.shape().pieces(); ++piece) {
    ++member.due;
    held->reader.WhenReady(piece, 1,
                           [this, &member, held, piece, process = member.process](
                               const absl::Status& status) {
                             if (process != member.process) return;  // its store ends
                             OnPieceReady(member, held, piece, status);
                           });
  }
}

void FleetSimulator::OnPieceReady(Member& member, const std::shared_ptr<HeldReader>& held,
                                  size_t piece, const absl::Status& status) {
  KVKEEP_CHECK(member.due > 0 && held->pieces_left > 0);
  --member.due;
  --held->pieces_left;
  if (!status.ok()) {
    KVKEEP_CHECK(!held->must);
    report_.corrupt += !held->failed;
    held->failed = true;
    return;
  }
  if (!held->reader) return;  // dropped meanwhile
  const ImageShape& shape = held->reader.shape();
  const std::vector<std::byte> bytes =
      held->Payload(piece * kPieceBytes, PieceSize(shape.payload_bytes, piece));
  const std::vector<Version>& versions = versions_[held->name];
  const bool known = std::any_of(versions.begin(), versions.end(), [&](const Version& version) {
    return version.shape == shape &&
           IsPayload(held->name, version.number, piece * kPieceBytes, bytes);
  });
  if (!known) std::printf("wrong bytes in piece %zu of name %lu\n", piece, held->name);
  KVKEEP_CHECK(known);
}

// All of it is one put's, and unchanged since it was reported ready.
void FleetSimulator::CheckReader(const HeldReader& held) {
  if (!held.ready()) return;
  const ImageShape& shape = held.reader.shape();
  const std::vector<std::byte> bytes = held.Payload(0, shape.payload_bytes);
  bool found = false;
  for (const Version& version : versions_[held.name]) {
    if (version.shape != shape || !IsPayload(held.name, version.number, 0, bytes)) continue;
    found = held.reader.Metadata() ==
            std::string(shape.tail_bytes, static_cast<char>('a' + version.number % 26));
    break;
  }
  if (!found) std::printf("wrong bytes of name %lu\n", held.name);
  KVKEEP_CHECK(found);
  report_.verified_bytes += bytes.size();
}

void FleetSimulator::DoPut(Member& member) {
  ++report_.operations;
  const uint64_t key = random_.Below(kNames);
  const auto part = static_cast<uint32_t>(random_.Below(fleet_.parts));
  const uint64_t name = Name(member, key, part);
  const Version version{next_version_++, RandomShape()};
  PutRequest request{.ns = member.ns,
                     .key = MakeKey(key),
                     .part = PartId(part),
                     .shape = version.shape,
                     .transient = random_.Chance(0.1),
                     .no_g3 = random_.Chance(0.05)};
  if (key % 32 != 0) request.parent = MakeKey(key - 1);
  absl::StatusOr<ReserveResult> reserved = member.node->store().Reserve(member.token, request);
  KVKEEP_CHECK(reserved.ok());
  Log(member, absl::StrCat("put ", name, " bytes ", version.shape.payload_bytes, " outcome ",
                           static_cast<int>(reserved->outcome)));
  MixLocal(name * 4 + static_cast<uint64_t>(reserved->outcome));
  if (reserved->outcome != ReserveResult::Outcome::kReserved) return;
  Reservation reservation = std::move(reserved->reservation);
  reservation.Append(MakePayload(name, version.number, version.shape.payload_bytes));
  const std::string tail(version.shape.tail_bytes, static_cast<char>('a' + version.number % 26));
  versions_[name].push_back(version);
  ++report_.puts;
  KVKEEP_CHECK(reservation.Seal(std::as_bytes(std::span(tail))).ok());
}

void FleetSimulator::DoRelease(Member& member) {
  if (member.leases.empty()) return;
  const size_t pick = random_.Below(member.leases.size());
  KVKEEP_CHECK(member.node->store().Release(member.token, member.leases[pick].id, 0).ok());
  Log(member, "release");
  member.leases.erase(member.leases.begin() + static_cast<ptrdiff_t>(pick));
}

void FleetSimulator::DoDropReader(Member& member) {
  if (member.readers.empty()) return;
  const size_t pick = random_.Below(member.readers.size());
  CheckReader(*member.readers[pick]);
  Log(member, "drop reader");
  member.readers.erase(member.readers.begin() + static_cast<ptrdiff_t>(pick));
}

void FleetSimulator::DoDelete(Member& member) {
  if (!fleet_.deletes) return;
  ++report_.operations;
  const uint64_t key = random_.Below(kNames);
  const std::vector<ChunkKey> keys = {MakeKey(key)};
  const std::vector<PartId> parts = Parts();
  const auto deleted = member.node->store().Delete(member.token, {member.ns, keys, parts});
  KVKEEP_CHECK(deleted.ok());
  Log(member, absl::StrCat("delete ", key));
  MixLocal(*deleted);
}

std::set<uint64_t> FleetSimulator::Served(const Member& member) const {
  std::vector<ChunkId> ids;
  std::vector<uint64_t> names;
  for (uint64_t key = 0; key < kNames; ++key) {
    for (uint32_t part = 0; part < fleet_.parts; ++part) {
      names.push_back(Name(member, key, part));
      ids.push_back(Id(member, names.back()));
    }
  }
  const PeerSource::Found found = member.node->store().LookForPeer(ids);
  std::set<uint64_t> served;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (found[i].has_value()) served.insert(names[i]);
  }
  return served;
}

// Offers the hottest chunks that the node names, some with another shape or key.
void FleetSimulator::DoOffer(Member& member) {
  Member& taker = members_[random_.Below(members_.size())];
  if (&taker == &member || taker.fleet != member.fleet) return;
  ++report_.operations;
  std::vector<OfferedChunk> offered =
      member.node->store().NameHottest({TenantTagOf(member.ns)}, random_.Between(1, 32)).hottest;
  for (OfferedChunk& one : offered) {
    if (random_.Chance(0.05)) one.shape = RandomShape();
    if (random_.Chance(0.05)) one.id.key = MakeKey(random_.Below(kNames));
  }
  Log(member, absl::StrCat("offers ", offered.size()));
  if (offered.empty()) return;
  for (const OfferedChunk& one : offered) {
    for (uint64_t key = 0; key < kNames; ++key) {
      if (MakeKey(key) == one.id.key) taker.recalled.insert(Name(taker, key, one.id.part.value()));
    }
  }
  const std::set<uint64_t> before = Served(taker);
  report_.offered += offered.size();
  ++taker.due;
  taker.node->store().TakeOffer(
      offered, [this, &taker, chunks = offered.size(),
                process = taker.process](const absl::StatusOr<OfferAnswer>& answer) {
        KVKEEP_CHECK(process == taker.process && taker.due > 0);
        --taker.due;
        CountTaken(answer, chunks);
      });
  const std::set<uint64_t> after = Served(taker);
  KVKEEP_CHECK(std::includes(after.begin(), after.end(), before.begin(), before.end()));
}

void FleetSimulator::CountTaken(const absl::StatusOr<OfferAnswer>& answer, size_t chunks) {
  KVKEEP_CHECK(answer.ok() || absl::IsResourceExhausted(answer.status()));
  if (!answer.ok()) return;
  KVKEEP_CHECK(answer->chunks.size() == chunks);
  const auto taken = std::count(answer->chunks.begin(), answer->chunks.end(), OfferEnd::kTaken);
  report_.taken += static_cast<uint64_t>(taken);
}

void FleetSimulator::DoRecall(Member& member) {
  if (fleet_.offers && random_.Chance(0.4)) return DoOffer(member);
  ++report_.operations;
  ++report_.recalls;
  const uint64_t first = random_.Below(kNames);
  const uint64_t length = random_.Between(1, std::min<uint64_t>(8, kNames - first));
  std::vector<ChunkKey> keys;
  for (uint64_t key = first; key < first + length; ++key) keys.push_back(MakeKey(key));
  NoteRecalled(member, first, keys.size());
  const std::vector<PartId> parts = Parts();
  Log(member, absl::StrCat("recall ", first, "+", length));
  ++member.due;
  member.node->store().Recall(
      member.token, {member.ns, keys, parts},
      [this, &member, process = member.process](const absl::StatusOr<uint64_t>& came) {
        KVKEEP_CHECK(process == member.process && member.due > 0);
        --member.due;
        KVKEEP_CHECK(came.ok() || absl::IsUnavailable(came.status()));
        if (came.ok()) report_.recalled += *came;
      });
}

}  // namespace kvkeep
