// Actions of the simulation's clients besides reading: sessions, lookups, puts, deletes.
#include <absl/strings/str_cat.h>

#include "tests/sim/simulator.h"
#include "tiers/base/check.h"

namespace kvkeep {

size_t Simulator::RandomSpace(const Client& client) {
  // Mostly one of them, so that names meet.
  return second_.FirstSpace(client.tenant) +
         (random_.Chance(0.6) ? 0 : random_.Below(second_.own_spaces()));
}

void Simulator::ConnectAll() {
  for (Space& one : spaces_) one.tenant = kAway;
  clients_.resize(std::max<uint64_t>(tenants(), random_.Between(1, 4)));
  for (size_t i = 0; i < clients_.size(); ++i) {
    clients_[i].tenant = TenantId(static_cast<uint32_t>(i % tenants()));
    Connect(clients_[i]);
  }
}

void Simulator::Connect(Client& client) {
  ++report_.operations;
  absl::StatusOr<SessionToken> token =
      world_.store().OpenSession({.client_name = "sim", .tenant = client.tenant});
  KVKEEP_CHECK(token.ok());
  client.token = *token;
  size_t at = second_.FirstSpace(client.tenant);
  for (uint32_t i = 0; i < scenario_.namespaces; ++i) {
    absl::StatusOr<NamespaceDigest> ns = world_.store().OpenNamespace(
        client.token,
        {.model = absl::StrCat("sim", i), .tokens_per_chunk = 16, .parts = scenario_.parts});
    KVKEEP_CHECK(ns.ok());
    for (uint32_t part = 0; part < scenario_.parts; ++part) {
      spaces_[at++] = {client.tenant, *ns, PartId(part)};
    }
  }
}

// A writer whose session is gone finds out when it seals, or gives up by itself. Returns true if it
// did.
bool Simulator::SealStalled(HeldPut& put, const SessionToken& token) {
  if (random_.Chance(0.5)) return false;
  const Uninterrupted no_deletes(&sealing_);
  put.reservation.Append(std::span(put.payload).subspan(put.reservation.appended_bytes()));
  const auto sealed = put.reservation.Seal(std::as_bytes(std::span(put.tail)));
  KVKEEP_CHECK(sealed.status().code() == absl::StatusCode::kFailedPrecondition);
  KVKEEP_CHECK(world_.store().Release(token, LeaseId(1), 0).code() ==
               absl::StatusCode::kFailedPrecondition);
  return true;
}

void Simulator::Disconnect(Client& client) {
  Log("disconnect");
  world_.store().CloseSession(client.token);
  for (HeldPut& put : client.puts) SealStalled(put, client.token);
  client.puts.clear();
  client.readers.clear();
  client.leases.clear();
  Connect(client);
}

// The client stops responding and loses its session; its calls go on, or stay.
void Simulator::Revoke(Client& client) {
  constexpr size_t kMostStalled = 4;
  if (stalled_.size() == kMostStalled) return DoStalled();
  Log("revoke");
  ++report_.revoked;
  world_.store().RevokeSession(client.token);
  stalled_.push_back({client.token, std::move(client.readers), std::move(client.puts)});
  client.puts.clear();
  client.readers.clear();
  client.leases.clear();
  Connect(client);
}

// A stalled client goes on: what it reads is still right, its requests are refused.
void Simulator::DoStalled() {
  if (stalled_.empty()) return;
  Log("stalled client goes on");
  Stalled stalled = std::move(stalled_.back());
  stalled_.pop_back();
  for (const auto& held : stalled.readers) CheckReader(*held);
  for (HeldPut& put : stalled.puts) SealStalled(put, stalled.token);
  const auto read = world_.store().Read(stalled.token, Id(0), LeaseId(0), false);
  KVKEEP_CHECK(read.status().code() == absl::StatusCode::kFailedPrecondition);
}

// Returns the leased bytes of the client's tenant, with chunks that are being read, as reads have
// no limit. The limit is shared as the arena's segments are, however many of them may be used now.
// A share is rounded.
Simulator::LeasedBytes Simulator::Leased(const Client& client) {
  const StoreSnapshot now = world_.store().snapshot();
  const StoreOptions options = world_.store().options();
  uint64_t first = 0, own = world_options_.g2_blocks, all = world_options_.g2_blocks;
  for (size_t tenant = 0; tenant < options.tenants.size(); ++tenant) {
    const uint64_t blocks =
        options.tenants[tenant].g2_segments * world_options_.g2_segment_blocks;
    if (tenant == client.tenant.value()) own = std::min(first + blocks, all) - first;
    first += blocks;
  }
  return {now.tenants[client.tenant.value()].g2.leased_bytes,
          options.max_leased_bytes * own / all + kBlockBytes};
}

void Simulator::DoLookup(Client& client) {
  // A chain of neighbours, as prompts are: from a shared head on.
  const uint64_t first = random_.Below(names_end_ / 8) * 8;
  const uint64_t length = random_.Between(1, 8);
  size_t space = RandomSpace(client);
  std::vector<PartId> parts = {spaces_[space].part};
  if (scenario_.parts > 1 && random_.Chance(0.5)) {
    space -= spaces_[space].part.value();
    for (uint32_t part = 1; part < scenario_.parts; ++part) parts.push_back(PartId(part));
    parts[0] = PartId(0);
  }
  Looked looked{space, first, {}, parts};
  for (uint64_t i = 0; i < length; ++i) looked.keys.push_back(MakeKey(first + i));
  const ChunkSet chunks{spaces_[space].ns, looked.keys, looked.parts};
  ++report_.operations;
  const uint64_t kind = random_.Below(10);
  if (kind == 0) {
    KVKEEP_CHECK(world_.store().Touch(client.token, chunks).ok());
    Log("touch");
    return;
  }
  if (kind == 1) {
    for (size_t i = 0; scenario_.world.remote && i < length * parts.size(); ++i) {
      NoteRecalled((space + i % parts.size()) * kNames + first + i / parts.size());
    }
    KVKEEP_CHECK(world_.store().Prefetch(client.token, chunks).ok());
    Log("prefetch");
    return;
  }
  const uint64_t mode = random_.Below(3);
  // The same id only ever belongs to the same request.
  const uint64_t request_id =
      1 + (((space * kNames + first) * 9 + length) * 3 + mode) * 2 + (parts.size() > 1);
  const LookupRequest request{.chunks = chunks,
                              .lease_mode = static_cast<LeaseMode>(mode),
                              .client_request_id = random_.Chance(0.2) ? request_id : 0,
                              .transient = random_.Chance(0.1)};
  if (scenario_.world.remote && random_.Chance(0.3)) return LookupBeyond(client, looked, request);
  const uint64_t interruptions = interruptions_;
  const LeasedBytes before = Leased(client);
  absl::StatusOr<LookupResult> result = world_.store().Lookup(client.token, request);
  if (!result.ok()) {
    KVKEEP_CHECK(result.status().code() == absl::StatusCode::kResourceExhausted);
    return;
  }
  Log(absl::StrCat("lookup ", space * kNames + first, "+", length, " leading ",
                   result->leading_keys, " leased ", result->leased_keys));
  KVKEEP_CHECK(result->beyond_keys == 0 && result->coming_parts.empty());
  NoteLease(client, looked, *result);
  KVKEEP_CHECK(interruptions != interruptions_ ||
               Leased(client).bytes <= std::max(before.limit, before.bytes));
}

// A chunk from beyond the node may fail to come: its place in a lease is no promise of bytes.
void Simulator::NoteLease(Client& client, const Looked& looked, const LookupResult& result) {
  KVKEEP_CHECK(result.leased_keys <= looked.keys.size());
  if (result.lease.value() == 0) return;
  const bool known = std::any_of(client.leases.begin(), client.leases.end(),
                                 [&](auto& lease) { return lease.id == result.lease; });
  if (known) return;
  HeldLease held{.id = result.lease, .keys = result.leased_keys};
  for (uint32_t i = 0; i < result.leased_keys; ++i) {
    for (size_t p = 0; p < looked.parts.size(); ++p) {
      const bool here = ((result.g2_parts[i] | result.g3_parts[i]) >> p & 1) != 0;
      const bool coming = !result.coming_parts.empty() && (result.coming_parts[i] >> p & 1) != 0;
      const uint64_t name = (looked.space + p) * kNames + looked.first + i;
      if (here || coming) held.names[name] = i;
      if ((here || coming) && (!here || unsure_.contains(name))) held.unsure.insert(name);
    }
  }
  client.leases.push_back(std::move(held));
}

void Simulator::LookupBeyond(Client& client, const Looked& looked, LookupRequest request) {
  ++report_.recalls;
  const auto kept = std::make_shared<const Looked>(looked);
  request.chunks = {spaces_[looked.space].ns, kept->keys, kept->parts};
  request.beyond = {.wait = std::chrono::milliseconds(random_.Below(100)),
                    .recompute_per_key = std::chrono::microseconds(
                        random_.Chance(0.5) ? 0 : random_.Below(100'000))};
  for (size_t i = 0; i < looked.keys.size() * looked.parts.size(); ++i) {
    NoteRecalled((looked.space + i % looked.parts.size()) * kNames + looked.first +
                 i / looked.parts.size());
  }
  ++callbacks_due_;
  Log(absl::StrCat("lookup beyond of ", looked.keys.size(), " from ", looked.first));
  // Answered at once, or looked up again after the search.
  const auto take = [this, kept](Client& asker, const absl::StatusOr<LookupResult>& result) {
    KVKEEP_CHECK(result.ok() || absl::IsResourceExhausted(result.status()));
    if (!result.ok()) return;
    KVKEEP_CHECK(result->leading_keys + result->beyond_keys <= kept->keys.size());
    NoteLease(asker, *kept, *result);
  };
  const auto look_again = [this, take, kept, token = client.token,
                       process = process_](LookupRequest request) {
    if (process != process_) return;
    --callbacks_due_;
    const auto asker = std::find_if(clients_.begin(), clients_.end(),
                                    [&](const Client& one) { return one.token == token; });
    // Its session has ended since; or it is in a call, and makes no other one.
    if (asker == clients_.end() || asker->busy) return;
    const Uninterrupted alone(&alone_);   // it may be inside another call
    take(*asker, world_.store().Lookup(token, request));
  };
  if (random_.Chance(0.2)) {
    world_.store().AskBeyond(client.token, request,
                             [look_again, request](bool) { look_again(request); });
    return;
  }
  LookupRequest again = request;
  again.after_search = true;
  const auto result = world_.store().LookupOrSearch(
      client.token, request, [look_again, again] { look_again(again); });
  if (!result.has_value()) return;
  --callbacks_due_;
  take(client, *result);
}

// It may be written back anew, and bytes from there may fail.
void Simulator::NoteRecalled(uint64_t name) {
  recalled_.insert(name);
  ++names_[name].changes;
}

void Simulator::DoBeginPut(Client& client) {
  if (client.puts.size() >= 4) return DoContinuePut(client);
  HeldPut put;
  put.name = RandomName(client);
  put.version = next_version_++;
  put.durable = random_.Chance(0.1);
  if (const auto doubted =
          std::find_if(doubted_.begin(), doubted_.end(),
                       [&](uint64_t name) { return space(name).tenant == client.tenant; });
      doubted != doubted_.end() && random_.Chance(0.3)) {
    put.name = *doubted;
    put.durable = true;
    doubted_.erase(doubted);
  }
  PutRequest request{.ns = space(put.name).ns,
                     .key = Key(put.name),
                     .part = space(put.name).part,
                     .shape = RandomShape(),
                     .transient = random_.Chance(0.1),
                     .no_g3 = random_.Chance(0.1),
                     .durable = put.durable};
  if (put.name % 8 != 0) request.parent = Key(put.name - 1);
  const uint64_t interruptions = interruptions_;
  ++report_.operations;
  absl::StatusOr<ReserveResult> reserved = world_.store().Reserve(client.token, request);
  KVKEEP_CHECK(reserved.ok());
  Log(absl::StrCat("put ", put.name, put.durable ? " durable" : "", " bytes ",
                   request.shape.payload_bytes, " outcome ", static_cast<int>(reserved->outcome)));
  if (reserved->outcome == ReserveResult::Outcome::kRejected) {
    KVKEEP_CHECK(!reserved->message.empty());
    ++report_.rejected;
  }
  if (reserved->outcome == ReserveResult::Outcome::kPresent) {
    if (interruptions == interruptions_) CheckPresent(client, put.name);
    if (put.durable) AwaitDurable(put.name);
  }
  if (reserved->outcome != ReserveResult::Outcome::kReserved) return;
  put.reservation = std::move(reserved->reservation);
  // A delete in between makes it a new version.
  put.version = std::max(put.version, next_version_++);
  put.payload = MakePayload(put.name, put.version, request.shape.payload_bytes);
  put.tail = std::string(request.shape.tail_bytes, static_cast<char>('a' + put.version % 26));
  client.puts.push_back(std::move(put));
}

void Simulator::DoContinuePut(Client& client) {
  if (client.puts.empty()) return;
  const auto pick = client.puts.begin() + static_cast<ptrdiff_t>(random_.Below(client.puts.size()));
  HeldPut put = std::move(*pick);
  client.puts.erase(pick);
  ++report_.operations;
  if (random_.Chance(0.1)) {
    Log("abort");
    return;
  }
  const size_t done = put.reservation.appended_bytes();
  const size_t left = put.payload.size() - done;
  const size_t now = random_.Chance(0.7) ? left : random_.Below(left + 1);
  put.reservation.Append(std::span(put.payload).subspan(done, now));
  if (put.reservation.appended_bytes() < put.payload.size()) {
    client.puts.push_back(std::move(put));
    return;
  }
  // From the seal on, whatever its answer, readers may see the bytes.
  names_[put.name].versions.push_back({put.version, put.reservation.shape()});
  if (deleting_ > 0) sealed_while_deleting_.emplace_back(put.name, put.version);
  const Uninterrupted no_deletes(&sealing_);
  const uint64_t interruptions = interruptions_;
  const auto sealed = put.reservation.Seal(std::as_bytes(std::span(put.tail)));
  Log(absl::StrCat("seal ", put.name, " version ", put.version, " ", sealed.ok()));
  KVKEEP_CHECK(sealed.ok() || sealed.status().code() == absl::StatusCode::kResourceExhausted);
  ++report_.puts;
  if (sealed.ok() && *sealed == SealOutcome::kPresent && interruptions == interruptions_) {
    CheckPresent(client, put.name);
  }
  if (sealed.ok() && *sealed == SealOutcome::kStored) {
    // An earlier version's promise ended when it was evicted. If it is in doubt, or out of reach,
    // the promise holds until this one's takes its place.
    ++names_[put.name].changes;
    if (RecordsOf(put.name).empty()) unsure_.erase(put.name);  // otherwise that one may come back
    if (!PromiseHolds(put.name)) durable_.erase(put.name);
  }
  if (sealed.ok() && put.durable) AwaitDurable(put.name);
}

// Not once the store has asked for the record's removal, whatever the result: the chunk had been
// evicted, also if it was put anew since.
bool Simulator::PromiseHolds(uint64_t name) {
  const auto promise = durable_.find(name);
  return promise != durable_.end() && world_.attached(promise->second.device) &&
         IsKept(name, promise->second);
}

bool Simulator::IsKept(uint64_t name, const Promise& promise) {
  if (world_.index(promise.device).MayForget(Id(name))) return false;
  const std::optional<IndexRecord> record = world_.index(promise.device).Find(Id(name));
  return record.has_value() && record->sequence == promise.sequence;
}

// As the server does for a durable put, also for one that was answered PRESENT.
void Simulator::AwaitDurable(uint64_t name) {
  ++callbacks_due_;
  world_.store().WhenDurable(Id(name), [this, name, changes = names_[name].changes,
                                        process = process_](absl::Status status) {
    if (process != process_) return;
    --callbacks_due_;
    if (!status.ok() || names_[name].changes != changes) return;
    ++report_.durable;
    const std::vector<Promise> records = RecordsOf(name);
    if (records.size() != 1) return;
    const ExtentList extents = world_.index(records[0].device).Find(Id(name))->extents;
    if (world_.Forgot(records[0].device, extents) ||
        world_.ForgotRecord(records[0].device, Id(name)) || IsBelieved(name, records[0])) {
      // Its drive lost it between the write and the sync without a report, or lied.
      ++report_.forgotten;
      return;
    }
    durable_[name] = records[0];
    promised_[name] = changes;
    unsure_.erase(name);
  });
}

void Simulator::DoRelease(Client& client) {
  if (client.leases.empty()) return;
  ++report_.operations;
  const size_t pick = random_.Below(client.leases.size());
  HeldLease& lease = client.leases[pick];
  const uint32_t keep =
      random_.Chance(0.3) ? static_cast<uint32_t>(random_.Below(lease.keys + 1)) : 0;
  const absl::Status released = world_.store().Release(client.token, lease.id, keep);
  Log(absl::StrCat("release keep ", keep));
  KVKEEP_CHECK(released.ok());
  std::erase_if(lease.names, [keep](const auto& name) { return name.second >= keep; });
  // With "all present" leases the first keys may be missing, as such a lease may have ended.
  const bool alive = world_.store().Release(client.token, lease.id, UINT32_MAX).ok();
  KVKEEP_CHECK(alive == !lease.names.empty());
  if (!alive) client.leases.erase(client.leases.begin() + static_cast<ptrdiff_t>(pick));
}

void Simulator::DoRecall(Client& client) {
  ++report_.operations;
  ++report_.recalls;
  if (scenario_.objects_vanish && !world_.bucket().empty() && random_.Chance(0.2)) {
    const auto steps = static_cast<ptrdiff_t>(random_.Below(world_.bucket().size()));
    world_.bucket().erase(std::next(world_.bucket().begin(), steps));
  }
  const size_t in = RandomSpace(client);
  std::set<uint64_t> names;
  for (uint64_t left = random_.Between(1, 12); left > 0; --left) {
    names.insert(in * kNames + random_.Below(names_end_));
  }
  std::vector<ChunkKey> keys;
  for (const uint64_t name : names) {
    keys.push_back(Key(name));
    NoteRecalled(name);
  }
  const std::vector<PartId> parts = {spaces_[in].part};
  ++callbacks_due_;
  Log(absl::StrCat("recall of ", names.size(), " from ", *names.begin()));
  world_.store().Recall(
      client.token, {spaces_[in].ns, keys, parts},
      [this, names, process = process_](const absl::StatusOr<uint64_t>& came) {
        if (process != process_) return;
        --callbacks_due_;
        KVKEEP_CHECK(came.ok() ? *came <= names.size() : absl::IsUnavailable(came.status()));
      });
}

void Simulator::DoDelete(Client& client) {
  if (sealing_ > 0 || deleting_ > 0) return;  // the model could not tell which came first
  ++report_.operations;
  const uint64_t last_version = next_version_ - 1;
  bool clear = false;
  const auto forget = [&](uint64_t name) {
    // A clear leaves what lies beyond the node, which may come back.
    if (!clear || !scenario_.world.remote) names_[name].deleted_up_to = last_version;
    ++names_[name].changes;
    durable_.erase(name);
    for (const auto& [sealed, version] : sealed_while_deleting_) {
      uint64_t& deleted = names_[name].deleted_up_to;
      if (sealed == name) deleted = std::min(deleted, version - 1);
    }
  };
  sealed_while_deleting_.clear();
  const auto uninterrupted = std::make_unique<Uninterrupted>(&deleting_);
  const uint64_t name = RandomName(client);
  if (random_.Chance(0.02)) {
    Log("clear");
    clear = true;
    const bool all = random_.Chance(0.5);
    world_.store().Clear(all ? std::nullopt : std::optional(space(name).ns));
    for (uint64_t other = 0; other < spaces_.size() * kNames; ++other) {
      if (all || space(other).ns == space(name).ns) forget(other);
    }
  } else {
    const std::vector<ChunkKey> keys = {Key(name)};
    const std::vector<PartId> parts = {space(name).part};
    KVKEEP_CHECK(world_.store().Delete(client.token, {space(name).ns, keys, parts}).ok());
    Log(absl::StrCat("delete ", name));
    forget(name);
  }
  // Puts under way with an older version may still be sealed afterwards: they count as new.
  for (Client& other : clients_) {
    for (HeldPut& put : other.puts) {
      if (put.reservation.appended_bytes() > 0) continue;
      put.version = next_version_++;
      put.payload = MakePayload(put.name, put.version, put.payload.size());
      put.tail.assign(put.tail.size(), static_cast<char>('a' + put.version % 26));
    }
    // Half-written ones cannot be renumbered: they are given up.
    std::erase_if(other.puts, [](HeldPut& put) { return put.reservation.appended_bytes() > 0; });
  }
}

}  // namespace kvkeep
