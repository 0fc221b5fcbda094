// One number for who may have the segments of an arena mapped. For arenas that outlive the daemon.
//
// A client keeps what it has mapped until the client ends; a restart of the daemon changes nothing
// of that. So memory that is kept over a restart must go to the same clients as before. Otherwise a
// reader that was taken out of a tenant's list (which takes a restart) would go on reading what is
// put into the old memory.
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
