#include "tests/sim/simulation.h"

#include <absl/strings/str_cat.h>

#include <cstdio>

#include "tests/sim/fleet/fleet_simulator.h"
#include "tests/sim/simulator.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// Draws capacities, as an operator may set them at any time; returns false if refused, as more has
// to stay.
bool DrawCapacities(World& world, SeededRandom& random, size_t devices) {
  StoreOptions options = world.store().options();
  const auto draw = [&random](uint64_t built) {
    return random.Chance(0.3) ? built : random.Between(built / 4, built);
  };
  options.g2_capacity_bytes = draw(world.arena().capacity_bytes());
  for (size_t d = 0; d < devices; ++d) {
    if (!world.attached(d)) continue;
    options.g3_capacity_bytes[d] = draw(world.nvme(d).capacity_bytes());
  }
  const absl::Status status = world.store().SetLimits(options);
  KVKEEP_CHECK(status.ok() || absl::IsResourceExhausted(status));
  return status.ok();
}

// Nothing holds more than it may, once nothing has to stay.
void CheckCapacities(Store& store) {
  const StoreOptions options = store.options();
  const StoreSnapshot now = store.snapshot();
  KVKEEP_CHECK(now.g2.used_bytes <= options.g2_capacity_bytes);
  for (size_t d = 0; d < now.devices.size(); ++d) {
    KVKEEP_CHECK(now.devices[d].used_bytes <= options.g3_capacity_bytes[d]);
  }
}

}  // namespace

void Simulator::Log(const std::string& what) {
  Mix(std::hash<std::string>()(what));
  if (options_.verbose) std::printf("%6lu %s\n", step_, what.c_str());
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

// Runs between two slices of a call of the store: anything may happen meanwhile.
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
  if (events_.has_value() && random_.Chance(0.3)) {
    KVKEEP_CHECK(events_->Read(random_.Between(1, 4)).ok());
  }
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
  } else if (pick < 744) {
    Disconnect(client);
  } else if (pick < 747) {
    Revoke(client);
  } else if (pick < 750) {
    if (depth_ == 0) DoCrash(random_.Chance(0.4));
  } else if (pick < 758) {
    DoTrouble();
  } else if (pick < 762) {
    DoStalled();
  } else if (pick < 764) {
    if (!scenario_.capacities) return;
    Log(absl::StrCat("capacities ", SetCapacities()));
  } else if (pick < 780) {
    // Rarely the machine is suspended, or its clock set.
    const bool long_time = random_.Chance(0.02);
    report_.injected.suspensions += long_time;
    world_.clock().Advance(
        std::chrono::milliseconds(random_.Between(1, long_time ? 1 << 23 : 2000)));
    if (random_.Chance(0.1)) {
      ++report_.injected.clock_steps;
      const auto hours = static_cast<int64_t>(random_.Below(20'000)) - 10'000;
      world_.clock().StepUnix(std::chrono::hours(hours));
    }
    Log("time passes");
    world_.store().Tick();
    if (world_options_.g2_in_parts && random_.Chance(0.2)) AddMemory(random_.Between(1, 64));
  } else if (pick >= 970 && pick < 1000 && scenario_.world.remote) {
    DoRecall(client);
  } else {
    const uint64_t most = random_.Below(30);
    uint64_t ran = 0;
    while (ran < most && world_.RunOneAtRandom()) ++ran;
    Log(absl::StrCat("ran ", ran));
  }
}

// Injects trouble with the devices of a running process.
void Simulator::DoTrouble() {
  const size_t devices = world_options_.device_blocks.size();
  if (devices == 0) return;
  const size_t device = random_.Below(devices);
  if (scenario_.devices_join && !world_.attached(device)) return DoJoin(device);
  if (scenario_.devices_join && random_.Chance(0.3)) return DoLeave(device);
  const uint64_t kind = random_.Below(5);
  if (kind == 0 && scenario_.medium_rots) {
    Log(absl::StrCat("damage ", world_.DamageDisk()));
  } else if (kind == 1 && scenario_.devices_vanish && world_.attached(device)) {
    const bool gone = random_.Chance(0.5);
    Log(absl::StrCat("device ", device, gone ? " gone" : " back"));
    world_.SetGone(device, gone);
  } else if (kind == 2 && scenario_.index_stalls) {
    const bool hold = random_.Chance(0.5);
    Log(hold ? "index stalls" : "index goes on");
    world_.HoldIndex(hold);
  } else if (kind == 3 && world_.attached(device)) {
    Log(absl::StrCat("unstuck: ", world_.device(device).Unstick()));
  } else if (kind == 4 && scenario_.drives_lose_power && world_.attached(device)) {
    DriveLosesPower(device);
  }
}

// A device comes that was not there at the start. A chunk that was deleted meanwhile stays deleted
// (deleted_up_to). A promise of a record there counts again, unless a drive misled the store about
// another record.
void Simulator::DoJoin(size_t device) {
  const auto note_misled = [this] {
    for (const uint64_t name : MisledByDrives()) {
      durable_.erase(name);
      unsure_.insert(name);
    }
  };
  note_misled();
  const Records before = RecordsOn(device);
  const uint64_t tails = world_.injected().lost_tails;
  const bool begun = world_.Join(device, [=, this, process = process_](const absl::Status& joined) {
    KVKEEP_CHECK(process == process_);
    Log(absl::StrCat("device ", device, joined.ok() ? " has joined" : " has not joined"));
    report_.joins += joined.ok();
    if (!joined.ok()) return;
    note_misled();
    for (const auto& [name, record] : RecordsOn(device)) {
      const auto promise = durable_.find(name);
      if (promise == durable_.end() || promise->second != record) unsure_.insert(name);
    }
  });
  joined_since_ = true;
  if (!begun) return;
  if (random_.Chance(0.1)) world_.index(device).FailNextScan(random_.Below(20));
  Log(absl::StrCat("device ", device, " joins"));
  NoteRevivedOn(device, before);
  if (world_.injected().lost_tails == tails) return;
  // Index writes that its drive forgot are undone as by a crash, deletes too.
  for (const auto& [name, record] : RecordsOn(device)) {
    const auto known = before.find(name);
    if (known == before.end() || known->second != record) names_[name].deleted_up_to = 0;
  }
}

// It leaves, as a failed device does before it is opened anew. Its promises count again when it has
// joined.
void Simulator::DoLeave(size_t device) {
  const bool begun = world_.Leave(device, [this, device, process = process_](absl::Status left) {
    KVKEEP_CHECK(process == process_);
    Log(absl::StrCat("device ", device, left.ok() ? " has left" : " stays"));
    if (!left.ok()) return;
    ++report_.leaves;
    left_.insert(device);
    std::erase_if(durable_, [this, device](const auto& one) {
      return one.second.device == device && !IsKept(one.first, one.second);
    });
  });
  began_to_leave_ |= begun;
  if (begun) Log(absl::StrCat("device ", device, " leaves"));
}

void Simulator::AddMemory(uint64_t most_blocks) {
  const uint64_t came = world_.AddMemory(most_blocks);
  Log(absl::StrCat("memory ", came));
  report_.memory_came += came;
}

// Sets new capacities. Chunks lost under the old ones do not count as a breach of the new ones.
bool Simulator::SetCapacities() {
  CheckQuotas();  // of everything that happened under the old ones
  const std::vector<TenantSnapshot> before = world_.store().snapshot().tenants;
  for (size_t t = 0; t < quotas_.size(); ++t) pushed_out_[t] = before[t].counters.g3_pushed_out;
  const bool set = DrawCapacities(world_, random_, world_options_.device_blocks.size());
  report_.capacities_set += set;
  return set;
}

// As the daemon does with a device whose I/O or sync failed.
void Simulator::OpenFailedAnew() {
  for (size_t d = 0; d < world_options_.device_blocks.size(); ++d) {
    if (!world_.attached(d)) continue;
    const std::optional<DeviceState> state = world_.store().StateOfAnswering(d);
    if (state != DeviceState::kReadOnly && state != DeviceState::kOffline) continue;
    DoLeave(d);
    world_.Settle();
    KVKEEP_CHECK(!world_.attached(d));
    DoJoin(d);
    world_.index(d).SetFaults({});
    world_.device(d).set_options({});
    world_.Settle();
  }
}

// All work ends, everything is given back, and an emptied store is empty.
void Simulator::FinishAll() {
  const Uninterrupted alone(&alone_);
  uint64_t attached = 0;
  for (size_t d = 0; d < world_options_.device_blocks.size(); ++d) {
    if (world_.attached(d)) world_.SetGone(d, false);
  }
  world_.RunToEnd();
  while (!stalled_.empty()) DoStalled();
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
    if (world_.attached(d)) world_.device(d).set_options({});
    world_.index(d).SetFaults({});
  }
  if (scenario_.world.remote) world_.remote().set_faults({});
  if (scenario_.capacities) SetCapacities();
  AddMemory(UINT64_MAX);
  world_.Settle();  // a device may still leave
  OpenFailedAnew();
  for (size_t d = 0; d < world_options_.device_blocks.size(); ++d) {
    if (!world_.attached(d)) world_.store().NotComing(d);
  }
  world_.Settle();  // waiters are told
  for (size_t d = 0; d < world_options_.device_blocks.size(); ++d) attached += world_.attached(d);
  KVKEEP_CHECK(callbacks_due_ == 0);
  world_.store().CheckInvariants();
  CheckQuotas();
  CheckRecordsInQuota();
  if (faultless_) CheckCapacities(world_.store());
  // Nothing waits for room that exists.
  if (faultless_ && attached > 0) KVKEEP_CHECK(world_.store().snapshot().g2.waiting_chunks == 0);
  durable_.clear();  // nothing is promised any more
  world_.store().Clear(std::nullopt);
  world_.Settle();
  if (events_.has_value()) {
    KVKEEP_CHECK(events_->Read().ok());
    KVKEEP_CHECK(events_->there().empty());
  }
  events_.reset();
  const StoreSnapshot end = world_.store().snapshot();
  for (const uint64_t mark : world_.arena().live_marks()) KVKEEP_CHECK(mark == 0);
  KVKEEP_CHECK(end.g2.to_come_bytes == 0);
  KVKEEP_CHECK(end.g2.used_bytes == 0 && end.g2.leased_bytes == 0 && end.g2.reserved_bytes == 0);
  // Only the label of each device stays.
  KVKEEP_CHECK(end.g3.used_bytes == attached * kBlockBytes);
  KVKEEP_CHECK(end.g3.chunks == 0 && end.sessions.empty());
  CountProcess();
  report_.injected.Add(world_.injected());
}

void Simulator::DrawFrom(uint64_t step) {
  random_ = SeededRandom(options_.seed * 0x9e3779b97f4a7c15 + step);
  world_.Reseed(random_.NextU64());
}

SimulationReport Simulator::Run() {
  world_.SetBetweenSlices([this] { Interrupt(); });
  spaces_.resize((tenants() + (scenario_.tenants_change ? 1 : 0)) * second_.own_spaces());
  believed_.resize(world_options_.device_blocks.size());
  DrawQuotas();
  world_.Start();
  ConnectAll();
  const uint64_t steps = options_.only.empty() ? options_.steps : options_.only.size();
  for (report_.steps = 0; report_.steps < steps; ++report_.steps) {
    step_ = options_.only.empty() ? report_.steps : options_.only[report_.steps];
    if (options_.progress != nullptr) *options_.progress = step_;
    DrawFrom(step_);
    Step();
    if (step_ % 64 == 0) {
      world_.store().CheckInvariants();
      CheckQuotas();
    }
    if (step_ % 256 == 0) CheckEvents();
  }
  FinishAll();
  return report_;
}

void SimulationReport::Add(const SimulationReport& other) {
  const auto add = [](uint64_t& sum, uint64_t more) { sum += more; };
  add(steps, other.steps);
  add(operations, other.operations);
  add(puts, other.puts);
  add(reads, other.reads);
  add(hits, other.hits);
  add(verified_bytes, other.verified_bytes);
  add(kills, other.kills);
  add(stops_in_order, other.stops_in_order);
  add(power_cuts, other.power_cuts);
  add(corrupt, other.corrupt);
  add(promotions, other.promotions);
  add(evictions, other.evictions);
  add(windows, other.windows);
  add(rejected, other.rejected);
  add(durable, other.durable);
  add(durable_read, other.durable_read);
  add(promises_checked, other.promises_checked);
  add(recovered_in_g2, other.recovered_in_g2);
  add(interruptions, other.interruptions);
  add(revoked, other.revoked);
  add(attachments, other.attachments);
  add(joins, other.joins);
  add(leaves, other.leaves);
  add(capacities_set, other.capacities_set);
  add(memory_came, other.memory_came);
  add(tenant_changes, other.tenant_changes);
  add(recalls, other.recalls);
  add(recalled, other.recalled);
  add(failed_recalls, other.failed_recalls);
  add(written_beyond, other.written_beyond);
  add(bad_beyond, other.bad_beyond);
  add(came_from_others, other.came_from_others);
  add(bucket_faults, other.bucket_faults);
  add(peer_bytes, other.peer_bytes);
  add(peer_faults, other.peer_faults);
  add(offered, other.offered);
  add(taken, other.taken);
  add(returned, other.returned);
  add(encrypted, other.encrypted);
  add(unauthentic, other.unauthentic);
  add(in_quota, other.in_quota);
  add(forgotten, other.forgotten);
  add(revived, other.revived);
  add(believed, other.believed);
  add(cleared, other.cleared);
  add(events, other.events);
  add(event_restarts, other.event_restarts);
  add(events_checked, other.events_checked);
  injected.Add(other.injected);
  digest ^= other.digest;
}

std::string SimulationReport::Describe() const {
  return absl::StrCat(
      "operations ", operations, " faults ", injected.faults(), " puts ", puts, " reads ", reads,
      " hits ", hits, " verified ", verified_bytes, " kills ", kills, " cuts ", power_cuts,
      " after a stop ", stops_in_order, " failed reads ", corrupt, " promotions ", promotions,
      " evictions ", evictions, " windows emptied ", windows, " durable ", durable,
      " read after a cut ", durable_read, " looked for ", promises_checked, " interrupted ",
      interruptions, " revoked ", revoked, " attached or not ", attachments, " joined ", joins,
      " left ", leaves, " capacities set ", capacities_set, " blocks came ", memory_came,
      " tenants changed ", tenant_changes, " recalls ", recalls, " of them came ", recalled,
      " not ", failed_recalls, " written beyond ", written_beyond, " bad there ", bad_beyond,
      " keys from others ", came_from_others, " faults of a bucket ", bucket_faults,
      " bytes from peers ", peer_bytes, " faults of peers ", peer_faults, " offered ", offered,
      " of them taken ", taken, " chunks found by who was away ", returned,
      " forgotten but told durable ", forgotten, " records back ", revived, " of them believed ",
      believed, " cleared ", cleared, " gone for a quota ", in_quota, " encrypted ", encrypted,
      " unauthentic ", unauthentic, " events ", events, " begun anew ", event_restarts, " checked ",
      events_checked, "; injected: ", injected.Describe(), "; digest ",
      absl::Hex(digest, absl::kZeroPad16));
}

SimulationReport RunSimulation(const SimulationOptions& options) {
  return options.nodes > 1 ? RunFleet(options) : Simulator(options).Run();
}

}  // namespace kvkeep
