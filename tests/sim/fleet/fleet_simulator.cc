#include "tests/sim/fleet/fleet_simulator.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstdio>

#include "tiers/base/check.h"
#include "tiers/base/tenant_tag.h"

namespace kvkeep {
namespace {

constexpr std::chrono::seconds kSecond(1);

// Returns the faults of a bucket for a while.
ObjectFaults RandomOutage(SeededRandom& random, const ObjectFaults& always) {
  ObjectFaults faults = always;
  switch (random.Below(6)) {
    case 0: faults.broken = 1; break;
    case 1: faults.stuck = 1; break;
    case 2: faults.throttled = 0.5; break;
    case 3: faults.hides_all = 1; break;
    case 4: faults.body_cut = faults.flipped = 0.5; break;
    default: faults.full = 1; break;
  }
  return faults;
}

}  // namespace

FleetSimulator::FleetSimulator(const SimulationOptions& options, FleetOptions::Bucket bucket)
    : options_(options),
      fleet_([&] {
        FleetOptions fleet =
            RandomFleet(options.seed, options.nodes, options.without, options.policy);
        fleet.bucket = bucket;
        if (bucket != FleetOptions::Bucket::kShared) {
          fleet.outages = fleet.meddlers = fleet.peers = fleet.only_peers = fleet.offers = false;
        }
        return fleet;
      }()),
      members_(options.nodes),
      random_(options.seed + 1) {
  for (size_t i = 0; i < members_.size(); ++i) {
    members_[i].fleet = fleet_.stranger && i + 1 == members_.size() ? 1 : 0;
    doors_.push_back(FleetNode::MakeDoor(i, members_[i].fleet));
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    std::vector<PeerDoor*> peers;
    for (size_t other = 0; fleet_.peers && other < members_.size(); ++other) {
      if (other != i && members_[other].fleet == member.fleet) peers.push_back(doors_[other].get());
    }
    member.node = std::make_unique<FleetNode>(fleet_, i, member.fleet, &bucket_, doors_[i].get(),
                                              std::move(peers));
    Connect(member);
  }
}

void FleetSimulator::Log(const Member& member, const std::string& what) {
  report_.digest = (report_.digest ^ std::hash<std::string>()(what)) * 0x100000001b3;
  if (!options_.verbose) return;
  std::printf("%6lu node %zu %s\n", step_, static_cast<size_t>(&member - members_.data()),
              what.c_str());
}

void FleetSimulator::Act(Member& member, uint64_t pick) {
  if (pick < 200) {
    DoLookup(member);
  } else if (pick < 350) {
    DoRead(member);
  } else if (pick < 560) {
    DoPut(member);
  } else if (pick < 640) {
    DoRelease(member);
  } else if (pick < 740) {
    DoDropReader(member);
  } else if (pick < 760) {
    DoDelete(member);
  } else if (pick < 800) {
    DoRecall(member);
  } else if (pick < 805) {
    DoEnd(member);
  } else if (pick < 815) {
    DoBucket();
  } else if (pick < 850) {
    PassTime(std::chrono::milliseconds(random_.Between(1, random_.Chance(0.1) ? 60'000 : 500)));
  } else {
    RunSome(member, random_.Below(60));
  }
}

void FleetSimulator::RunSome(Member& member, uint64_t tasks) {
  uint64_t ran = 0;
  while (ran < tasks && member.node->world().RunOneAtRandom()) ++ran;
  Log(member, absl::StrCat("ran ", ran));
}

void FleetSimulator::PassTime(std::chrono::milliseconds time) {
  for (Member& member : members_) {
    member.node->Pass(time);
    if (random_.Chance(0.5)) continue;
    member.node->world().RunAll();
    CheckAnswered(member);
  }
  Log(members_[0], absl::StrCat("passed ", time.count(), " ms"));
}

void FleetSimulator::RunAll(Member& member) {
  if (!fleet_.peers) return member.node->world().RunAll();
  const auto idle = [this] {
    return std::all_of(members_.begin(), members_.end(),
                       [](const Member& one) { return one.node->world().executor().idle(); });
  };
  do {
    for (Member& one : members_) one.node->world().RunAll();
  } while (!idle());
}

void FleetSimulator::CheckAnswered(const Member& member) {
  KVKEEP_CHECK(member.answer_by.empty() || *member.answer_by.begin() > member.node->now());
}

void FleetSimulator::DoEnd(Member& member) {
  if (!fleet_.kills) return;
  LetGo(member);
  CountProcess(member);
  ++member.process;
  member.due = 0;
  member.answer_by.clear();
  member.recalled.clear();
  const bool machine = fleet_.machines_lost && random_.Chance(0.5);
  Log(member, machine ? "is a new machine" : "restarts");
  machine ? member.node->Replace() : member.node->Restart();
  ++(machine ? report_.power_cuts : report_.kills);
  Connect(member);
}

void FleetSimulator::CountProcess(const Member& member) {
  const StoreSnapshot snapshot = member.node->store().snapshot();
  if (!snapshot.remote.has_value()) return;
  report_.written_beyond += snapshot.remote->written_chunks;
  report_.bad_beyond += snapshot.remote->bad_images;
  report_.peer_faults += member.node->peer_faults_injected();
  if (const FleetSource* const peers = member.node->fleet_source(); peers != nullptr) {
    report_.peer_bytes += peers->counters().read_bytes;
  }
  if (!member.node->has_bucket()) return;
  report_.bad_beyond += member.node->source().counters().removed_bad;
  report_.bucket_faults += member.node->objects().faults_injected();
}

void FleetSimulator::DoPartition() {
  PeerDoor& door = members_[random_.Below(members_.size())].node->door();
  door.cut_off = !door.cut_off;
  Log(members_[0], absl::StrCat("partition ", door.cut_off));
}

void FleetSimulator::DoBucket() {
  if (fleet_.partitions && random_.Chance(0.3)) return DoPartition();
  if (fleet_.meddlers && random_.Chance(0.5)) return Meddle();
  if (!bucket_.late.empty() && random_.Chance(0.3)) {
    Log(members_[0], "a dead process's put lands");
    return bucket_.LandLate(random_.Below(bucket_.late.size()));
  }
  if (!fleet_.outages) return;
  if (random_.Chance(0.4)) return EndOutages();
  const ObjectFaults faults = RandomOutage(random_, fleet_.faults);
  const bool reachable = random_.Chance(0.8);
  const bool all = random_.Chance(0.5);
  const size_t one = random_.Below(members_.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!all && i != one) continue;
    Log(members_[i], "has an outage");
    members_[i].node->SetFaults(faults);
    members_[i].node->SetReachable(reachable);
  }
}

void FleetSimulator::EndOutages() {
  for (Member& member : members_) {
    member.node->SetFaults(fleet_.faults);
    member.node->SetReachable(fleet_.bucket != FleetOptions::Bucket::kDead);
    member.node->door().cut_off = false;
  }
}

// Acts as a program that may write to the bucket and has no key.
void FleetSimulator::Meddle() {
  if (bucket_.now.empty()) return;
  const auto any = [this](auto& map) {
    return std::next(map.begin(), static_cast<ptrdiff_t>(random_.Below(map.size())));
  };
  const auto at = any(bucket_.now);
  std::string body = at->second->body;
  const uint64_t kind = random_.Below(5);
  Log(members_[0], absl::StrCat("somebody meddles ", kind));
  if (kind == 0) {
    body[random_.Below(body.size())] ^= 1;
  } else if (kind == 1) {
    body.resize(random_.Below(body.size()) + 1);
  } else if (kind == 2) {
    body = any(bucket_.now)->second->body;
  } else if (kind == 3 && !bucket_.before.empty()) {
    body = any(bucket_.before)->second->body;
  } else {
    bucket_.now.erase(at);
    return;
  }
  bucket_.Publish(at->first, std::move(body), at->second->modified);
}

void FleetSimulator::Step() {
  Member& member = members_[random_.Below(members_.size())];
  Act(member, random_.Below(1000));
  if (fleet_.summaries && random_.Chance(0.05)) {
    Log(member, "takes summaries");
    member.node->TakeSummaries({TenantTagOf(member.ns)});
  }
  if (fleet_.bucket == FleetOptions::Bucket::kShared) return;
  for (Member& each : members_) each.node->world().RunAll();
}

void FleetSimulator::CheckAll() {
  for (Member& member : members_) {
    member.node->store().CheckInvariants();
    if (!member.node->has_bucket()) continue;
    const BucketSourceCounters counters = member.node->source().counters();
    const uint64_t most = fleet_.source.search.max_questions * counters.searches;
    const uint64_t ages = member.node->store().snapshot().remote->aged_chunks;
    KVKEEP_CHECK(counters.probes <= most + ages);
    // Without meddlers, foreign objects are not there under our names.
    if (!fleet_.objects_are_whole() || fleet_.outages) continue;
    KVKEEP_CHECK(counters.bad_seal + counters.bad_header + counters.bad_identity +
                     counters.bad_size + counters.bad_plain + counters.removed_bad ==
                 0);
  }
}

// ---- the end

void FleetSimulator::FinishAll() {
  // A few reads in a row may take this long: then everything is answered, whatever the bucket does.
  for (int i = 0; i < 300; ++i) PassTime(kSecond);
  for (Member& member : members_) {
    RunAll(member);
    KVKEEP_CHECK(member.due == 0);
    for (const auto& held : member.readers) CheckReader(*held);
    LetGo(member);
    member.node->store().CloseSession(member.token);
    Connect(member);
  }
  for (Member& member : members_) {
    member.node->SetFaults({});
    member.node->SetPeerFaults({});
    member.node->SetReachable(fleet_.bucket != FleetOptions::Bucket::kDead);
    member.node->door().cut_off = false;
  }
  while (!bucket_.late.empty()) bucket_.LandLate(0);
  SettleAll();
  CheckAll();
  if (fleet_.bucket == FleetOptions::Bucket::kShared) {
    for (Member& member : members_) {
      RecallAll(member, /*fresh=*/false);
      CountProcess(member);
      member.node->Replace();
      Connect(member);
      RecallAll(member, /*fresh=*/true);
    }
  }
  for (Member& member : members_) Empty(member);
}

void FleetSimulator::SettleAll() {
  for (int i = 0; i < 1000; ++i) {
    bool quiet = i >= 20;  // absent objects may be asked for again
    for (Member& member : members_) {
      member.node->Pass(kSecond);
      RunAll(member);
      quiet = quiet && member.node->store().snapshot().dirty_chunks == 0 &&
              member.node->store().beyond_is_quiet();
    }
    if (quiet) return;
  }
  KVKEEP_CHECK(false);  // something never ends
}

// Asked twice: bad objects are found the first time, and go.
void FleetSimulator::RecallAll(Member& member, bool fresh) {
  for (const auto& [name, versions] : versions_) {
    if (name / kNames / 2 != member.fleet) continue;
    const std::string object = member.node->NameOf(Id(member, name));
    const bool there = bucket_.now.contains(object);
    const bool at_peer = IsAtPeer(member, name);
    const bool came = RecallOne(member, name);
    KVKEEP_CHECK(there || at_peer || !came || !fresh);
    // Asked again: a peer may have evicted what it was asked for.
    const bool asks_all = fleet_.fleet_source.most_peers + 1 >= members_.size();
    const bool must_come = at_peer && asks_all && !came && !RecallOne(member, name);
    KVKEEP_CHECK(!must_come || !IsAtPeer(member, name));
    if (fleet_.summaries && at_peer) CheckSummaries(member, name, came);
    report_.recalled += came;
    if (came || !there) continue;
    ++report_.failed_recalls;
    // A peer may be too busy to serve what it found, and the object be another version.
    const bool unlike = at_peer && versions.size() > 1;
    KVKEEP_CHECK(!fleet_.objects_are_whole() || fleet_.outages || unlike);
    SettleAll();
    // Gone, or put anew.
    KVKEEP_CHECK(!bucket_.now.contains(object) || RecallOne(member, name, /*alone=*/true));
  }
}

// A new summary names each chunk that its node serves, so that this is found, however few peers are
// asked. Summaries may name it of others, too: then it is soon the turn of the one that has it.
void FleetSimulator::CheckSummaries(Member& member, uint64_t name, bool came) {
  member.node->TakeSummaries({TenantTagOf(member.ns)});
  KVKEEP_CHECK(!IsAtPeer(member, name) || member.node->IsNamed(Id(member, name)));
  for (int i = 0; i < 20 && !came; ++i) {
    member.node->TakeSummaries({TenantTagOf(member.ns)});
    came = RecallOne(member, name, /*alone=*/true);
  }
  KVKEEP_CHECK(came || !IsAtPeer(member, name));
}

bool FleetSimulator::IsAtPeer(const Member& member, uint64_t name) {
  if (!fleet_.peers) return false;
  const std::vector<ChunkId> ids = {Id(member, name)};
  return std::any_of(members_.begin(), members_.end(), [&](const Member& other) {
    return &other != &member && other.fleet == member.fleet &&
           other.node->store().LookForPeer(ids)[0].has_value();
  });
}

// With the key before it, which may not be there, or alone. If it came, its bytes are right.
bool FleetSimulator::RecallOne(Member& member, uint64_t name, bool alone) {
  Store& store = member.node->store();
  const uint64_t key = name % kNames;
  std::vector<ChunkKey> keys;
  if (key > 0 && !alone) keys.push_back(MakeKey(key - 1));
  keys.push_back(MakeKey(key));
  const std::vector<PartId> parts = {PartId(name / kNames % 2)};
  store.Recall(member.token, {member.ns, keys, parts}, [](const absl::StatusOr<uint64_t>& told) {
    KVKEEP_CHECK(told.ok());
  });
  RunAll(member);
  absl::StatusOr<ReadResult> read = store.Read(member.token, Id(member, name), LeaseId(0), false);
  KVKEEP_CHECK(read.ok());
  if (read->outcome != ReadOutcome::kHit) return false;
  StartRead(member, name, *std::move(read), true);
  RunAll(member);
  KVKEEP_CHECK(member.due == 0);
  CheckReader(*member.readers.back());
  member.readers.clear();
  return true;
}

void FleetSimulator::Empty(Member& member) {
  Store& store = member.node->store();
  store.CloseSession(member.token);
  store.Clear(std::nullopt);
  for (int i = 0; i < 30; ++i) {
    member.node->Pass(kSecond);
    member.node->world().RunAll();
  }
  store.CheckInvariants();
  const StoreSnapshot end = store.snapshot();
  KVKEEP_CHECK(end.g2.used_bytes == 0 && end.g2.leased_bytes == 0 && end.g2.reserved_bytes == 0);
  KVKEEP_CHECK(end.g3.used_bytes == fleet_.world.device_blocks.size() * kBlockBytes);
}

SimulationReport FleetSimulator::Run() {
  const uint64_t steps = options_.only.empty() ? options_.steps : options_.only.size();
  for (report_.steps = 0; report_.steps < steps; ++report_.steps) {
    step_ = options_.only.empty() ? report_.steps : options_.only[report_.steps];
    if (options_.progress != nullptr) *options_.progress = step_;
    random_ = SeededRandom(options_.seed * 0x9e3779b97f4a7c15 + step_);
    for (Member& member : members_) member.node->Reseed(random_.NextU64());
    Step();
    if (step_ % 64 == 0) CheckAll();
  }
  FinishAll();
  return report_;
}

SimulationReport RunFleet(const SimulationOptions& options, FleetOptions::Bucket bucket) {
  return FleetSimulator(options, bucket).Run();
}

}  // namespace kvkeep
