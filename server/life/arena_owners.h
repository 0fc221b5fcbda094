// A number that identifies the clients that may map an arena's segments. For arenas that outlive
// the daemon.
//
// A client keeps its mappings until the client ends, even over a restart of the daemon. So
// memory that is kept over a restart must go to the same clients as before. Otherwise a reader that
// was removed from a tenant's list (which takes a restart) would go on reading what is put into the
// old memory.
#pragma once

#include <cstdint>
#include <vector>

#include "server/life/options.h"
#include "tiers/store/types.h"

namespace kvkeep {

// The number changes with the tenants, their shares, their readers, and who may connect to their
// local sockets (mode, group, uids, gids, whether there is one). 0: none of that is configured.
uint64_t NameArenaOwners(const std::vector<TenantOptions>& tenants,
                         const std::vector<TenantListener>& listeners);

}  // namespace kvkeep
