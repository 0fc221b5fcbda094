#include "tests/sim/simulation.h"

#include <absl/strings/str_cat.h>

#include <cstdio>

#include "tests/sim/simulator.h"
#include "tiers/base/check.h"

namespace kvkeep {

void Simulator::Log(const std::string& what) {
  Mix(std::hash<std::string>()(what));
  if (options_.verbose) std::printf("%6lu %s\n", report_.steps, what.c_str());
}

ImageShape Simulator::RandomShape() {
  ImageShape shape;
  if (names_end_ < kNames && random_.Chance(0.7)) {  // so that images come to lie on older ones
    shape.payload_bytes = random_.Chance(0.5) ? 3000 : kPieceBytes + 3000;
    return shape;
  }
  const uint64_t kind = random_.Below(100);
  if (kind < 40) {
    shape.payload_bytes = static_cast<uint32_t>(random_.Between(1, 4096));
  } else if (kind < 90) {
    shape.payload_bytes = static_cast<uint32_t>(random_.Between(4096, 128 << 10));
  } else {
    shape.payload_bytes = static_cast<uint32_t>(random_.Between(128 << 10, 2300 << 10));
  }
  shape.tail_bytes = random_.Chance(0.3) ? static_cast<uint32_t>(random_.Between(1, 2000)) : 0;
  return shape;
}

// A chain of neighbours, as prompts are: from a shared head on.
std::vector<ChunkKey> Simulator::RandomChain(std::vector<uint64_t>* names) {
  const uint64_t first = random_.Below(names_end_ / 8) * 8;
  const uint64_t length = random_.Between(1, 8);
  std::vector<ChunkKey> keys;
  for (uint64_t i = 0; i < length; ++i) {
    names->push_back(first + i);
    keys.push_back(MakeKey(first + i));
  }
  return keys;
}

void Simulator::Connect(Client& client) {
  absl::StatusOr<SessionToken> token = world_.store().OpenSession({.client_name = "sim"});
  KVKEEP_CHECK(token.ok());
  client.token = *token;
  absl::StatusOr<NamespaceDigest> ns = world_.store().OpenNamespace(
      client.token, {.model = "sim", .tokens_per_chunk = 16, .parts = 1});
  KVKEEP_CHECK(ns.ok());
  ns_ = *ns;
}

void Simulator::Disconnect(Client& client) {
  Log("disconnect");
  const Uninterrupted no_deletes(&sealing_);
  world_.store().CloseSession(client.token);
  for (HeldPut& put : client.puts) {
    // The writer finds out when it seals, or gives up by itself.
    if (random_.Chance(0.5)) continue;
    put.reservation.Append(std::span(put.payload).subspan(put.reservation.appended_bytes()));
    const auto sealed = put.reservation.Seal(std::as_bytes(std::span(put.tail)));
    KVKEEP_CHECK(sealed.status().code() == absl::StatusCode::kFailedPrecondition);
  }
  client.puts.clear();
  client.readers.clear();
  client.leases.clear();
  Connect(client);
}

void Simulator::DoLookup(Client& client) {
  std::vector<uint64_t> names;
  const std::vector<ChunkKey> keys = RandomChain(&names);
  const std::vector<PartId> parts = {PartId(0)};
  const ChunkSet chunks{ns_, keys, parts};
  const uint64_t kind = random_.Below(10);
  if (kind == 0) {
    KVKEEP_CHECK(world_.store().Touch(client.token, chunks).ok());
    Log("touch");
    return;
  }
  if (kind == 1) {
    KVKEEP_CHECK(world_.store().Prefetch(client.token, chunks).ok());
    Log("prefetch");
    return;
  }
  const uint64_t mode = random_.Below(3);
  // The same id only ever for the same request.
  const uint64_t request_id = 1 + (names[0] * 8 + names.size()) * 3 + mode;
  const LookupRequest request{.chunks = chunks,
                              .lease_mode = static_cast<LeaseMode>(mode),
                              .client_request_id = random_.Chance(0.2) ? request_id : 0,
                              .transient = random_.Chance(0.1)};
  const uint64_t interruptions = interruptions_;
  absl::StatusOr<LookupResult> result = world_.store().Lookup(client.token, request);
  if (!result.ok()) {
    KVKEEP_CHECK(result.status().code() == absl::StatusCode::kResourceExhausted);
    return;
  }
  Log(absl::StrCat("lookup ", names[0], "+", names.size(), " leading ", result->leading_keys,
                   " leased ", result->leased_keys));
  KVKEEP_CHECK(result->leased_keys <= keys.size());
  if (result->lease.value() == 0) return;
  const bool known = std::any_of(client.leases.begin(), client.leases.end(),
                                 [&](auto& lease) { return lease.id == result->lease; });
  if (known) return;
  KVKEEP_CHECK(interruptions != interruptions_ ||  // reads have no such limit
               world_.store().snapshot().g2.leased_bytes <=
                   world_.store().options().max_leased_bytes);
  HeldLease held{.id = result->lease, .keys = result->leased_keys};
  for (uint32_t i = 0; i < result->leased_keys; ++i) {
    if ((result->g2_parts[i] | result->g3_parts[i]) != 0) held.names[names[i]] = i;
  }
  client.leases.push_back(std::move(held));
}

void Simulator::DoBeginPut(Client& client) {
  if (client.puts.size() >= 4) return DoContinuePut(client);
  HeldPut put;
  put.name = random_.Below(names_end_);
  put.version = next_version_++;
  put.durable = random_.Chance(0.1);
  PutRequest request{.ns = ns_,
                     .key = MakeKey(put.name),
                     .shape = RandomShape(),
                     .transient = random_.Chance(0.1),
                     .no_g3 = random_.Chance(0.1),
                     .durable = put.durable};
  if (put.name % 8 != 0) request.parent = MakeKey(put.name - 1);
  const uint64_t interruptions = interruptions_;
  absl::StatusOr<ReserveResult> reserved = world_.store().Reserve(client.token, request);
  KVKEEP_CHECK(reserved.ok());
  Log(absl::StrCat("put ", put.name, " bytes ", request.shape.payload_bytes, " outcome ",
                   static_cast<int>(reserved->outcome)));
  if (reserved->outcome == ReserveResult::Outcome::kRejected) {
    KVKEEP_CHECK(!reserved->message.empty());
    ++report_.rejected;
  }
  if (reserved->outcome == ReserveResult::Outcome::kPresent && interruptions == interruptions_) {
    CheckPresent(client, put.name);
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
  // From the seal on, whatever its answer, the bytes may be seen.
  names_[put.name].versions.push_back({put.version, put.reservation.shape()});
  if (deleting_ > 0) sealed_while_deleting_.emplace_back(put.name, put.version);
  const Uninterrupted no_deletes(&sealing_);
  const uint64_t interruptions = interruptions_;
  const auto sealed = put.reservation.Seal(std::as_bytes(std::span(put.tail)));
  Log(absl::StrCat("seal ", put.name, " version ", put.version, " ", sealed.ok()));
  KVKEEP_CHECK(sealed.ok() || sealed.status().code() == absl::StatusCode::kResourceExhausted);
  ++report_.puts;
  const bool interrupted = interruptions != interruptions_;
  if (sealed.ok() && *sealed == SealOutcome::kPresent && !interrupted) {
    CheckPresent(client, put.name);
  }
  if (sealed.ok() && *sealed == SealOutcome::kStored) {
    // An earlier version was evicted: its promise ended then.
    // Interrupted: another put of the name may have come after it by now, so nothing is said.
    names_[put.name].stored = interrupted ? 0 : put.version;
    unsure_.erase(put.name);
    durable_.erase(put.name);
  }
  if (sealed.ok() && put.durable) {
    ++callbacks_due_;
    world_.store().WhenDurable(
        {ns_, MakeKey(put.name), PartId(0)},
        [this, name = put.name, version = put.version, process = process_](absl::Status status) {
          if (process != process_) return;
          --callbacks_due_;
          if (!status.ok()) return;
          ++report_.durable;
          const Name& now = names_[name];
          if (now.deleted_up_to < version && now.stored == version) {
            durable_[name] = RecordOf(name);
          }
        });
  }
}

void Simulator::DoRelease(Client& client) {
  if (client.leases.empty()) return;
  const size_t pick = random_.Below(client.leases.size());
  HeldLease& lease = client.leases[pick];
  const uint32_t keep =
      random_.Chance(0.3) ? static_cast<uint32_t>(random_.Below(lease.keys + 1)) : 0;
  const absl::Status released = world_.store().Release(client.token, lease.id, keep);
  Log(absl::StrCat("release keep ", keep));
  KVKEEP_CHECK(released.ok());
  std::erase_if(lease.names, [keep](const auto& name) { return name.second >= keep; });
  // With "all present" leases the first keys may be missing: such a lease may have ended.
  const bool alive = world_.store().Release(client.token, lease.id, UINT32_MAX).ok();
  KVKEEP_CHECK(alive == !lease.names.empty());
  if (!alive) client.leases.erase(client.leases.begin() + static_cast<ptrdiff_t>(pick));
}

void Simulator::DoDelete(Client& client) {
  if (sealing_ > 0 || deleting_ > 0) return;  // the model could not tell which came first
  const uint64_t last_version = next_version_ - 1;
  const auto forget = [&](uint64_t name) {
    names_[name].deleted_up_to = last_version;
    durable_.erase(name);
    for (const auto& [sealed, version] : sealed_while_deleting_) {
      uint64_t& deleted = names_[name].deleted_up_to;
      if (sealed == name) deleted = std::min(deleted, version - 1);
    }
  };
  sealed_while_deleting_.clear();
  const auto uninterrupted = std::make_unique<Uninterrupted>(&deleting_);
  if (random_.Chance(0.02)) {
    Log("clear");
    world_.store().Clear(random_.Chance(0.5) ? std::optional(ns_) : std::nullopt);
    for (uint64_t name = 0; name < kNames; ++name) forget(name);
  } else {
    const uint64_t name = random_.Below(names_end_);
    const std::vector<ChunkKey> keys = {MakeKey(name)};
    const std::vector<PartId> parts = {PartId(0)};
    KVKEEP_CHECK(world_.store().Delete(client.token, {ns_, keys, parts}).ok());
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

// Between two slices of a call of the store: whatever may happen meanwhile.
void Simulator::Interrupt() {
  constexpr int kDeepest = 3;
  if (!world_.running() || alone_ > 0 || depth_ == kDeepest || !random_.Chance(0.3)) return;
  ++interruptions_;
  ++report_.interruptions;
  ++depth_;
  if (random_.Chance(0.05)) world_.store().CheckInvariants();
  Step();
  --depth_;
}

void Simulator::Step() {
  Client& client = AnyClient();
  const uint64_t pick = client.busy ? 1000 : random_.Below(1000);
  const bool was_busy = std::exchange(client.busy, true);
  Act(client, pick);
  // After a crash there are other clients.
  if (!crashed_) client.busy = was_busy;
  crashed_ = false;
}

void Simulator::Act(Client& client, uint64_t pick) {
  if (pick < 120) {
    DoLookup(client);
  } else if (pick < 260) {
    DoRead(client);
  } else if (pick < 430) {
    DoBeginPut(client);
  } else if (pick < 620) {
    DoContinuePut(client);
  } else if (pick < 660) {
    DoRelease(client);
  } else if (pick < 672) {
    DoDelete(client);
  } else if (pick < 740) {
    DoDropReader(client);
  } else if (pick < 745) {
    Disconnect(client);
  } else if (pick < 748) {
    if (depth_ == 0) DoCrash(random_.Chance(0.4));
  } else if (pick < 752) {
    if (!faultless_) Log(absl::StrCat("damage ", world_.DamageDisk()));
  } else if (pick < 770) {
    world_.clock().Advance(std::chrono::milliseconds(random_.Between(1, 2000)));
    world_.store().Tick();
  } else {
    for (uint64_t i = random_.Below(30); i > 0 && world_.RunOneAtRandom(); --i) {
    }
  }
}

// All work ends, all is given back, and an emptied store is empty.
void Simulator::FinishAll() {
  const Uninterrupted alone(&alone_);
  world_.RunAll();
  for (Client& client : clients_) {
    for (const auto& held : client.readers) {
      KVKEEP_CHECK(held->pieces_left == 0);
      CheckReader(*held);
    }
    client.puts.clear();
    client.readers.clear();
    world_.store().CloseSession(client.token);
  }
  for (size_t d = 0; d < world_options_.device_blocks.size(); ++d) {
    world_.device(d).set_options({});
    world_.index(d).SetFaults({});
  }
  world_.Settle();
  KVKEEP_CHECK(callbacks_due_ == 0);
  world_.store().CheckInvariants();
  world_.store().Clear(std::nullopt);
  world_.Settle();
  const StoreSnapshot end = world_.store().snapshot();
  for (const uint64_t mark : world_.arena().live_marks()) KVKEEP_CHECK(mark == 0);
  KVKEEP_CHECK(end.g2.used_bytes == 0 && end.g2.leased_bytes == 0 && end.g2.reserved_bytes == 0);
  // Only the label of each device stays.
  KVKEEP_CHECK(end.g3.used_bytes == world_options_.device_blocks.size() * kBlockBytes);
  KVKEEP_CHECK(end.g3.chunks == 0 && end.sessions.empty());
  CountProcess();
}

SimulationReport Simulator::Run() {
  world_.SetBetweenSlices([this] { Interrupt(); });
  world_.Start();
  clients_.resize(random_.Between(1, 4));
  for (Client& client : clients_) Connect(client);
  for (report_.steps = 0; report_.steps < options_.steps; ++report_.steps) {
    Step();
    if (report_.steps % 64 == 0) world_.store().CheckInvariants();
  }
  FinishAll();
  return report_;
}

SimulationReport RunSimulation(const SimulationOptions& options) {
  return Simulator(options).Run();
}

}  // namespace kvkeep
