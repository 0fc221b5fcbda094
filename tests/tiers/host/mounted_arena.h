// An arena on mounts of a test's own, in segments of 2 MiB.
#pragma once

#include <memory>

#include "tests/tiers/host/child_process.h"
#include "tiers/base/executor.h"
#include "tiers/base/units.h"
#include "tiers/host/arena.h"

namespace kvkeep {

inline ArenaOptions MountOptions(const MountRoom& room, uint64_t capacity_bytes) {
  ArenaOptions options;
  options.capacity_bytes = capacity_bytes;
  options.segment_bytes = 2 * kMiB;
  options.backing = ArenaBacking::kMount;
  options.mount_dir = room.writable;
  options.readonly_dir = room.readonly;
  return options;
}

// Returns the arena, or null and a finding.
inline std::unique_ptr<Arena> Open(const ArenaOptions& options, Findings& findings,
                                   Executor* executor = nullptr) {
  auto arena = CreateArena(options, executor);
  if (!findings.Expect(arena.ok(), arena.status().ToString())) return nullptr;
  return *std::move(arena);
}

}  // namespace kvkeep
