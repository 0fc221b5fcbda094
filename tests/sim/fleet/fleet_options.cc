#include "tests/sim/fleet/fleet_options.h"

#include "tests/sim/removal.h"

namespace kvkeep {
namespace {

const Removal<FleetOptions> kFleetRemovals[] = {
    {"delay", [](FleetOptions& f) { f.faults.delay = 0; }},
    {"bucket_refuses",
     [](FleetOptions& f) {
       f.faults.broken = f.faults.throttled = f.faults.full = f.faults.late = f.faults.stuck = 0;
     }},
    {"bucket_lies",
     [](FleetOptions& f) {
       f.faults.flipped = f.faults.other_range = f.faults.old_version = f.faults.body_cut = 0;
       f.faults.half_published = f.faults.gone = f.faults.hides_all = 0;
     }},
    {"answers_lost", [](FleetOptions& f) { f.faults.answer_lost = 0; }},
    {"outages", [](FleetOptions& f) { f.outages = false; }},
    {"meddlers", [](FleetOptions& f) { f.meddlers = false; }},
    {"kills", [](FleetOptions& f) { f.kills = f.machines_lost = false; }},
    {"machines_lost", [](FleetOptions& f) { f.machines_lost = false; }},
    {"deletes", [](FleetOptions& f) { f.deletes = false; }},
    {"stranger", [](FleetOptions& f) { f.stranger = false; }},
    {"parts", [](FleetOptions& f) { f.parts = 1; }},
    {"slices", [](FleetOptions& f) { f.world.hold_work = 0; }},
    {"peers",
     [](FleetOptions& f) {
       f.peers = f.only_peers = f.partitions = f.offers = f.summaries = false;
     }},
    {"summaries", [](FleetOptions& f) { f.summaries = false; }},
    {"offers", [](FleetOptions& f) { f.offers = false; }},
    {"no_bucket", [](FleetOptions& f) { f.only_peers = false; }},
    {"partitions", [](FleetOptions& f) { f.partitions = false; }},
    {"peer_faults", [](FleetOptions& f) { f.peer_faults = {.delay = f.peer_faults.delay}; }},
};

ObjectFaults RandomFaults(SeededRandom& random) {
  // 0 in every other case.
  const auto up_to = [&random](double most) {
    return random.Chance(0.5) ? most * 0.001 * static_cast<double>(random.Below(1001)) : 0.0;
  };
  return {.broken = up_to(0.1),
          .throttled = up_to(0.1),
          .full = up_to(0.1),
          .late = up_to(0.05),
          .answer_lost = up_to(0.2),
          .body_cut = up_to(0.05),
          .flipped = up_to(0.1),
          .other_range = up_to(0.05),
          .old_version = up_to(0.3),
          .half_published = up_to(0.05),
          .gone = up_to(0.02),
          .hides_all = up_to(0.02),
          .ignores_if_absent = up_to(1),
          .stuck = up_to(0.05)};
}

// Draws from numbers of its own, so that fleets without peers stay as they were.
void DrawPeers(uint64_t seed, FleetOptions& fleet) {
  SeededRandom random(seed ^ 0x5eed0fbee5);
  fleet.peers = random.Chance(0.5) && fleet.nodes > 1;
  if (!fleet.peers) return;
  fleet.only_peers = random.Chance(0.3);
  if (fleet.only_peers) fleet.stranger = false;  // it would have nobody to ask
  fleet.partitions = random.Chance(0.4);
  fleet.fleet_source.most_peers = random.Between(1, 3);
  if (random.Chance(0.3)) fleet.fleet_source.remembered_chunks = random.Between(1, 16);
  fleet.fleet_source.remember_for = std::chrono::milliseconds(random.Between(1, 60'000));
  fleet.offers = SeededRandom(seed ^ 0x0ffe45).Chance(0.5);
  fleet.summaries = SeededRandom(seed ^ 0x5a33a41e5).Chance(0.5);
  fleet.peer_faults.delay = random.Chance(0.5) ? 0.3 : 0;
  if (random.Chance(0.4)) return;
  const auto up_to = [&random](double most) {
    return random.Chance(0.5) ? most * 0.001 * static_cast<double>(random.Below(1001)) : 0.0;
  };
  PeerFaults& faults = fleet.peer_faults;
  faults.lost = up_to(0.2);
  faults.busy = up_to(0.3);
  faults.cut = up_to(0.1);
  faults.flipped = up_to(0.1);
  faults.hides = up_to(0.2);
  faults.other_shape = up_to(0.05);
  faults.other_image = up_to(0.2);
  faults.other_place = up_to(0.1);
}

}  // namespace

FleetOptions RandomFleet(uint64_t seed, size_t nodes, const std::vector<std::string>& without,
                         const std::string& policy) {
  SeededRandom random(seed);
  FleetOptions fleet{.seed = seed, .nodes = nodes};
  fleet.stranger = nodes > 1 && random.Chance(0.2);
  fleet.parts = random.Chance(0.3) ? 2 : 1;
  fleet.kills = random.Chance(0.7);
  fleet.machines_lost = fleet.kills && random.Chance(0.7);
  fleet.deletes = random.Chance(0.5);
  if (random.Chance(0.6)) {
    fleet.faults = RandomFaults(random);
    fleet.outages = random.Chance(0.6);
    fleet.meddlers = random.Chance(0.4);
  }
  fleet.faults.delay = random.Chance(0.5) ? 0.3 : 0;

  WorldOptions& world = fleet.world;
  world.g2_blocks = random.Between(400, 2000);
  world.g2_segment_blocks = 4096;
  world.arena_outlives = random.Chance(0.5);
  world.device_blocks.clear();
  if (random.Chance(0.6)) world.device_blocks.push_back(random.Between(200, 2000));
  world.store.g2_policy = world.store.g3_policy = policy;
  world.store.max_chunks = 4096;
  world.store.remote_second_use = random.Chance(0.4);
  if (random.Chance(0.3)) {
    world.store.remote_write_bytes_per_second = random.Between(1, 64) * 16 * kKiB;
  }
  if (random.Chance(0.5)) {  // images are written anew at half of this age
    world.store.remote_lifetime = std::chrono::seconds(random.Between(1, 600));
  }
  world.hold_work = random.Chance(0.5) ? static_cast<uint32_t>(random.Between(1, 300)) : 0;

  BucketSourceOptions& source = fleet.source;
  source.whole_up_to = random.Chance(0.5) ? 32 * kKiB : 12 * kMiB;
  source.part_bytes = random.Between(1, 16) * kBlockBytes;
  source.parts_at_once = static_cast<uint32_t>(random.Between(1, 4));
  source.probes_at_once = random.Between(1, 64);
  source.presence_entries = random.Chance(0.3) ? 16 : 4096;
  source.writes_in_flight = random.Between(1, 64) * 64 * kKiB;
  DrawPeers(seed, fleet);
  LeaveOut<FleetOptions>(kFleetRemovals, without, fleet);
  return fleet;
}

const std::vector<std::string>& FleetRemovable() {
  static const auto* const names =
      new std::vector<std::string>(NamesOf<FleetOptions>(kFleetRemovals));
  return *names;
}

}  // namespace kvkeep
