// WorldOptions: the parts of one simulated world, and the faults that it may have.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/faulty_device.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/memory_device.h"
#include "tests/fakes/memory_index.h"
#include "tests/fakes/memory_remote_source.h"
#include "tiers/crypt/key_ring.h"
#include "tiers/store/types.h"

namespace kvkeep {

struct WorldOptions {
  uint64_t seed = 1;
  uint64_t g2_blocks = 1024;  // 4 MiB
  uint64_t g2_segment_blocks = 512;
  bool arena_outlives = false;
  bool g2_in_parts = false;  // a new arena has a part of its memory, drawn; or
  std::vector<uint64_t> g2_there;  // this many blocks of each non-empty segment
  std::vector<uint64_t> device_blocks = {2048};
  FaultOptions device_faults;
  double drives_lie = 0;     // of the syncs of a drive, disk and index
  bool index_tails = false;  // a drive that loses its power alone also forgets of the index
  bool late_writes = false;  // otherwise a dead process's land at once
  MemoryIndex::Faults index_faults;
  bool remote = false;  // something lies beyond the node
  bool remote_keeps = true;  // false: it is peers alone, without keys
  RemoteFaults remote_faults;
  // Instead of that: for each process, what lies beyond the node, and the keys of writes there. The
  // process runs the source's tasks.
  std::function<std::unique_ptr<RemoteSource>(ManualExecutor*, ManualClock*)> make_source;
  std::shared_ptr<const KeyRing> source_keys;
  // A world is small: memory for the default's millions of chunks would be touched at each start.
  StoreOptions store = {.max_chunks = 10'000};
  // Encryption of what is written; kLater: from the second process on, so that plain and encrypted
  // images lie side by side.
  enum class Encryption : uint8_t { kOff, kOn, kLater } encryption = Encryption::kOff;
  uint32_t hold_work = 0;                  // as StoreDeps::hold_work
  uint32_t large_chunks = 0;               // as StoreDeps::large_chunks
  uint64_t recency_chunks = 0;             // as StoreDeps::recency_chunks
  std::vector<std::string> later_tenants;  // that SetTenants may name: they have keys
};

}  // namespace kvkeep
