#include "tests/sim/random_world.h"

namespace kvkeep {

WorldOptions RandomWorld(uint64_t seed) {
  SeededRandom random(seed);
  WorldOptions options;
  options.seed = seed;
  options.g2_blocks = random.Between(60, random.Chance(0.5) ? 200 : 900);
  options.g2_segment_blocks = random.Chance(0.5) ? 64 : 512;
  options.device_blocks.clear();
  options.arena_outlives = random.Chance(0.6);
  const uint64_t devices = random.Chance(0.1) ? 0 : random.Between(1, 2);
  for (uint64_t d = 0; d < devices; ++d) options.device_blocks.push_back(random.Between(100, 1500));
  if (random.Chance(0.5)) {  // half of the seeds are free of faults, and held to more
    const auto chance = [&random](double most) {
      return random.Chance(0.5) ? most * 0.001 * static_cast<double>(random.Below(1001)) : 0.0;
    };
    options.device_faults = {.read_error = chance(0.02),
                             .corrupt_read = chance(0.02),
                             .write_error = chance(0.02),
                             .corrupt_write = chance(0.02),
                             .torn_write = chance(0.02),
                             .misdirected_write = chance(0.01),
                             .delay = chance(0.3)};
    options.index_faults = {
        .commit_refused = chance(0.05), .commit_error = chance(0.02), .sync_error = chance(0.01)};
  } else {
    options.device_faults.delay = random.Chance(0.5) ? 0.2 : 0;
  }
  // Some seeds have slow disks: what is read or written ends long after everything around it.
  options.device_faults.max_delay_turns = random.Chance(0.3) ? 400 : 16;
  options.store.max_chunks = random.Chance(0.2) ? 24 : 4096;
  options.store.max_sessions = 8;
  options.store.max_leases_per_session = 16;
  options.store.max_device_writes_in_flight_bytes = random.Between(1, 64) * 64 * kKiB;
  options.store.max_device_reads_in_flight_bytes = random.Between(1, 64) * 64 * kKiB;
  // Holds so short that what is a few chunks here is cut up as thousands are in a daemon.
  options.hold_work = random.Chance(0.7) ? static_cast<uint32_t>(random.Between(1, 300)) : 0;
  return options;
}

bool FreeOfFaults(const WorldOptions& options) {
  const FaultOptions& device = options.device_faults;
  const MemoryIndex::Faults& index = options.index_faults;
  return device.read_error + device.corrupt_read + device.write_error + device.corrupt_write +
             device.torn_write + device.misdirected_write + index.commit_refused +
             index.commit_error + index.sync_error ==
         0;
}

}  // namespace kvkeep
