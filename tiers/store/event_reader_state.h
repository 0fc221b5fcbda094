// EventReaderState: what the store remembers of one reader of events. A plain struct; the store's
// lock protects it.
#pragma once

#include <absl/functional/any_invocable.h>

#include <optional>

#include "tiers/base/bytes.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

struct EventReaderState {
  std::optional<SessionToken> session;  // it reads one namespace, for this session
  std::optional<uint32_t> tag;          // it reads the tenant's namespaces; neither: it reads all
  TenantId tenant{UINT32_MAX};
  NamespaceDigest ns;
  bool anew = true;      // a snapshot is due
  bool walking = false;  // a snapshot is under way
  ChunkSlot walk{0};     // the snapshot's next slot
  uint64_t next = 0;     // the number of the next event
  absl::AnyInvocable<void() &&> wake;

  bool Wants(const ChunkId& id) const {
    if (session.has_value()) return id.ns == ns;
    return !tag.has_value() || LoadAt<uint32_t>(AsBytes(id.ns.view()).data()) == *tag;
  }
};

}  // namespace kvkeep::store_internal
