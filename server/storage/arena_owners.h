// Who may have an arena's segments mapped, as one number: of arenas that outlive the daemon.
//
// What a client has mapped it keeps until it ends, whoever restarts the daemon. So memory that is
// kept over a restart must be given to the same clients as before: else a reader that was taken out
// of a list, by the restart that this takes, would go on reading what comes into the old memory.
#pragma once

#include <cstdint>
#include <vector>

#include "server/life/options.h"
#include "tiers/store/types.h"

namespace kvkeep {

// Another number when a tenant, its share, its readers, or who may connect to its local socket
// (mode, group, uids, gids, whether there is one) is another. 0 where nothing of that is said.
uint64_t NameArenaOwners(const std::vector<TenantOptions>& tenants,
                         const std::vector<TenantListener>& listeners);

}  // namespace kvkeep
