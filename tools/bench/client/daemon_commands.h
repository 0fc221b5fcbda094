// A daemon's report on itself, by its admin socket. In a process of its own: to ask costs CPU
// time, which must not count as a client's.
#pragma once

#include "tools/bench/client/commands.h"

namespace kvkeep::bench {

// "watch" {admin}: whose socket. "status": {pid, version, arena, g2_capacity_bytes, g2_dirty_bytes,
// g3_capacity_bytes, counters: {name: value}}. "clear": the daemon forgets all chunks. "default
// sockets": {endpoint, admin}, as all of kvkeep's tools have them.
void AddDaemonCommands(Commands* commands);

}  // namespace kvkeep::bench
