// Commands for a daemon's status, by its admin socket. They run in a process of their own, as their
// CPU time must not count as a client's.
#pragma once

#include "tools/bench/client/commands.h"

namespace kvkeep::bench {

// "watch" {admin}: the socket to use. "status": {pid, version, arena, g2_capacity_bytes,
// g2_dirty_bytes, g3_capacity_bytes, counters: {name: value}}. "clear": the daemon forgets all
// chunks. "default sockets": {endpoint, admin}, the defaults of all of kvkeep's tools.
void AddDaemonCommands(Commands* commands);

}  // namespace kvkeep::bench
