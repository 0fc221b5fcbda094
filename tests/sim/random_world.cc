#include "tests/sim/random_world.h"

#include "tests/sim/removal.h"

namespace kvkeep {
namespace {

const Removal<Scenario> kRemovals[] = {
    {"read_error", [](Scenario& s) { s.world.device_faults.read_error = 0; }},
    {"corrupt_read", [](Scenario& s) { s.world.device_faults.corrupt_read = 0; }},
    {"short_read", [](Scenario& s) { s.world.device_faults.short_read = 0; }},
    {"misdirected_read", [](Scenario& s) { s.world.device_faults.misdirected_read = 0; }},
    {"write_error", [](Scenario& s) { s.world.device_faults.write_error = 0; }},
    {"corrupt_write", [](Scenario& s) { s.world.device_faults.corrupt_write = 0; }},
    {"torn_write", [](Scenario& s) { s.world.device_faults.torn_write = 0; }},
    {"misdirected_write", [](Scenario& s) { s.world.device_faults.misdirected_write = 0; }},
    {"sync_error", [](Scenario& s) { s.world.device_faults.sync_error = 0; }},
    {"sync_drops", [](Scenario& s) { s.world.device_faults.sync_drops = 0; }},
    {"sync_lies", [](Scenario& s) { s.world.device_faults.sync_lies = 0; }},
    {"delay", [](Scenario& s) { s.world.device_faults.delay = 0; }},
    {"stuck", [](Scenario& s) { s.world.device_faults.stuck = 0; }},
    {"index_refused", [](Scenario& s) { s.world.index_faults.commit_refused = 0; }},
    {"index_error", [](Scenario& s) { s.world.index_faults.commit_error = 0; }},
    {"index_sync_error", [](Scenario& s) { s.world.index_faults.sync_error = 0; }},
    {"index_sync_lies", [](Scenario& s) { s.world.index_faults.sync_lies = 0; }},
    {"index_stalls", [](Scenario& s) { s.index_stalls = false; }},
    {"medium_rots", [](Scenario& s) { s.medium_rots = false; }},
    {"memory_rots", [](Scenario& s) { s.memory_rots = false; }},
    {"devices_vanish", [](Scenario& s) { s.devices_vanish = false; }},
    {"drive_power", [](Scenario& s) { s.drives_lose_power = false; }},
    {"drives_lie", [](Scenario& s) { s.world.drives_lie = s.world.index_faults.sync_forgets = 0; }},
    {"index_breaks", [](Scenario& s) { s.world.index_faults.breaks = false; }},
    {"index_tails", [](Scenario& s) { s.world.index_tails = false; }},
    {"devices_leave", [](Scenario& s) { s.devices_leave = false; }},
    {"devices_join", [](Scenario& s) { s.devices_join = false; }},
    {"late_writes", [](Scenario& s) { s.world.late_writes = false; }},
    {"slices", [](Scenario& s) { s.world.hold_work = 0; }},
    {"windows", [](Scenario& s) { s.world.large_chunks = 0; }},
    {"scrub", [](Scenario& s) { s.world.store.scrub_bytes_per_second = 0; }},
    {"admission", [](Scenario& s) { s.world.store.g3_admission = "all"; }},
    {"encryption", [](Scenario& s) { s.world.encryption = WorldOptions::Encryption::kOff; }},
    {"tenants",
     [](Scenario& s) {
       s.world.store.tenants.clear();
       s.quotas = s.tenants_change = false;
     }},
    {"tenants_change", [](Scenario& s) { s.tenants_change = false; }},
    {"quotas", [](Scenario& s) { s.quotas = false; }},
    {"remote", [](Scenario& s) { s.world.remote = s.objects_vanish = false; }},
    {"remote_faults",
     [](Scenario& s) {
       s.world.remote_faults = {};
       s.objects_vanish = false;
     }},
    {"capacities", [](Scenario& s) { s.capacities = false; }},
    {"memory_comes", [](Scenario& s) { s.world.g2_in_parts = false; }},
    {"namespaces", [](Scenario& s) { s.namespaces = 1; }},
    {"parts", [](Scenario& s) { s.parts = 1; }},
};

// 0 in every other case.
double UpTo(double most, SeededRandom& random) {
  return random.Chance(0.5) ? most * 0.001 * static_cast<double>(random.Below(1001)) : 0.0;
}

void AddFaults(SeededRandom& random, Scenario& scenario) {
  // A third of the worlds have no silent faults: reported faults must do no harm there.
  const bool honest = random.Chance(0.33);
  const auto chance = [&random](double most) { return UpTo(most, random); };
  const auto silent = [&](double most) { return honest ? 0.0 : chance(most); };
  FaultOptions& device = scenario.world.device_faults;
  device = {.read_error = silent(0.02),
            .corrupt_read = silent(0.02),
            .short_read = silent(0.01),
            .misdirected_read = silent(0.01),
            .write_error = chance(0.02),
            .corrupt_write = silent(0.02),
            .torn_write = chance(0.02),
            .misdirected_write = silent(0.01),
            .torn_reported_ok = honest ? 0.0 : 0.5,
            .delay = chance(0.3),
            .sync_error = random.Chance(0.3) ? chance(0.05) : 0,
            .sync_lies = random.Chance(0.2) ? silent(0.5) : 0};
  scenario.world.index_faults = {.commit_refused = chance(0.05),
                                 .commit_error = chance(0.02),
                                 .sync_error = chance(0.01),
                                 .sync_lies = device.sync_lies};
  scenario.medium_rots = !honest && random.Chance(0.5);
  scenario.memory_rots = !honest && random.Chance(0.5);
  scenario.devices_vanish = random.Chance(0.3);
  device.sync_drops = random.Chance(0.7) ? 0.7 : 0;
  scenario.drives_lose_power = random.Chance(0.3);
}

WorldOptions::Encryption RandomEncryption(SeededRandom& random) {
  using Encryption = WorldOptions::Encryption;
  if (!random.Chance(0.4)) return Encryption::kOff;
  return random.Chance(0.3) ? Encryption::kLater : Encryption::kOn;
}

void AddRemote(SeededRandom& random, Scenario& scenario, bool faults) {
  scenario.world.remote = true;
  scenario.world.store.remote_second_use = scenario.world.seed % 3 == 0;
  // Virtual time passes in seconds. Nothing expires, and images are written anew all the same.
  scenario.world.store.remote_lifetime = std::chrono::seconds(scenario.world.seed % 5 * 2);
  scenario.world.remote_faults.delay = random.Chance(0.5) ? 0.3 : 0;
  if (!faults || random.Chance(0.3)) return;
  const auto chance = [&random](double most) { return UpTo(most, random); };
  scenario.world.remote_faults = {.delay = scenario.world.remote_faults.delay,
                                  .hides = chance(0.2),
                                  .finds_other = chance(0.05),
                                  .read_error = chance(0.1),
                                  .corrupt_read = chance(0.1),
                                  .other_read = chance(0.1),
                                  .write_error = chance(0.2),
                                  .half_written = chance(0.1),
                                  .answer_lost = chance(0.2),
                                  .remove_error = chance(0.3),
                                  .away = chance(0.2)};
  scenario.objects_vanish = random.Chance(0.5);
}

void LetTenantsChange(SeededRandom& random, Scenario& scenario) {
  scenario.tenants_change = true;
  scenario.world.later_tenants = {"guest"};
  if (random.Chance(0.5)) {
    scenario.world.store.scrub_bytes_per_second = random.Between(1, 1000) * kMiB;
  }
}

}  // namespace

Scenario RandomScenario(uint64_t seed, const std::vector<std::string>& without,
                        const std::string& policy) {
  SeededRandom random(seed);
  Scenario scenario;
  WorldOptions& options = scenario.world;
  options.seed = seed;
  options.store.g2_policy = options.store.g3_policy = policy;
  options.g2_blocks = random.Between(60, random.Chance(0.5) ? 200 : 900);
  options.g2_segment_blocks = random.Chance(0.5) ? 64 : 512;
  options.device_blocks.clear();
  options.arena_outlives = random.Chance(0.6);
  options.late_writes = true;
  const uint64_t devices = random.Chance(0.1) ? 0 : random.Between(1, 2);
  for (uint64_t d = 0; d < devices; ++d) options.device_blocks.push_back(random.Between(100, 1500));
  const bool faults = random.Chance(0.5);  // the others must meet more rules
  if (faults) AddFaults(random, scenario);
  if (!faults) options.device_faults.delay = random.Chance(0.5) ? 0.2 : 0;
  // Some seeds have slow disks: reads and writes end long after everything around them.
  options.device_faults.max_delay_turns = random.Chance(0.3) ? 400 : 16;
  options.device_faults.stuck = random.Chance(0.2) ? 0.02 : 0;
  scenario.index_stalls = random.Chance(0.3);
  scenario.devices_leave = random.Chance(0.2);
  scenario.namespaces = random.Chance(0.2) ? 2 : 1;
  scenario.parts = random.Chance(0.25) ? 2 : 1;
  const uint64_t segments = DivideRoundUp(options.g2_blocks, options.g2_segment_blocks);
  if (segments > 1 && random.Chance(0.5)) {
    const uint64_t first = random.Between(1, segments - 1);
    options.store.tenants = {{.name = "", .g2_segments = first},
                             {.name = "other", .g2_segments = segments - first}};
  }
  options.store.max_chunks = random.Chance(0.2) ? 24 : 4096;
  options.store.max_sessions = 64;  // also for the tenant with the smallest part
  options.store.max_leases_per_session = 16;
  options.store.max_device_writes_in_flight_bytes = random.Between(1, 64) * 64 * kKiB;
  options.store.max_device_reads_in_flight_bytes = random.Between(1, 64) * 64 * kKiB;
  options.store.max_remote_reads_in_flight_bytes = options.store.max_device_reads_in_flight_bytes;
  if (random.Chance(0.3)) options.store.scrub_bytes_per_second = random.Between(1, 1000) * kMiB;
  // Holds so short that a few chunks are cut up here as thousands are in a daemon.
  options.hold_work = random.Chance(0.7) ? static_cast<uint32_t>(random.Between(1, 300)) : 0;
  // Makes stores empty parts of tiers for images that are only a little larger than others. It
  // draws nothing itself, so that known seeds mostly stay the same.
  options.large_chunks = options.hold_work % 4;
  options.encryption = RandomEncryption(random);
  scenario.quotas = !options.store.tenants.empty() && devices > 0 && random.Chance(0.7);
  if (random.Chance(0.3)) {
    options.store.g3_admission = random.Chance(0.5) ? "second_use" : "write_budget";
    options.store.g3_write_bytes_per_second = random.Between(1, 1000);
  }
  scenario.capacities = random.Chance(0.3);
  // Sometimes so few that their reader falls behind again and again.
  options.store.events.log_entries = random.Chance(0.5) ? random.Between(1, 20) : 1000;
  // Last, so that worlds without these stay the same.
  if (faults) {
    options.index_faults.breaks = random.Chance(0.5);
    options.index_tails = random.Chance(0.7);
    if (random.Chance(0.25)) {
      options.drives_lie = random.Chance(0.5) ? 0.05 : 0.5;
      options.index_faults.sync_forgets = options.drives_lie;
    }
    // Soon after most starts, so that other writes follow the failed ones.
    if (options.index_faults.breaks && random.Chance(0.3)) options.index_faults.commit_error = 0.1;
  }
  if (!options.store.tenants.empty() && random.Chance(0.5)) LetTenantsChange(random, scenario);
  scenario.devices_join = random.Chance(0.3);
  options.g2_in_parts = random.Chance(0.2);
  if (random.Chance(0.35)) AddRemote(random, scenario, faults);
  LeaveOut<Scenario>(kRemovals, without, scenario);
  return scenario;
}

const std::vector<std::string>& Removable() {
  static const auto* const names = new std::vector<std::string>(NamesOf<Scenario>(kRemovals));
  return *names;
}

bool FreeOfFaults(const Scenario& scenario) {
  const FaultOptions& device = scenario.world.device_faults;
  const MemoryIndex::Faults& index = scenario.world.index_faults;
  return Honest(scenario) && scenario.world.remote_faults.sum() == 0 && !scenario.objects_vanish &&
         !scenario.devices_vanish && !scenario.drives_lose_power &&
         scenario.world.drives_lie == 0 &&
         device.write_error + device.torn_write + device.sync_error + index.commit_refused +
                 index.commit_error + index.sync_error ==
             0;
}

bool Honest(const Scenario& scenario) {
  const FaultOptions& device = scenario.world.device_faults;
  const double silent = device.read_error + device.corrupt_read + device.short_read +
                        device.misdirected_read + device.corrupt_write +
                        device.torn_write * device.torn_reported_ok + device.misdirected_write +
                        device.sync_lies + scenario.world.index_faults.sync_lies;
  return silent == 0 && !scenario.medium_rots && !scenario.memory_rots;
}

}  // namespace kvkeep
