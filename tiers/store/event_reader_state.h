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
  std::optional<SessionToken> session;  // of one namespace, for a session
  std::optional<uint32_t> tag;          // of all of one tenant's; neither: of all there are
  TenantId tenant{UINT32_MAX};
  NamespaceDigest ns;
  bool anew = true;      // a snapshot is due
  bool walking = false;  // one is under way
  ChunkSlot walk{0};     // then: the next slot
  uint64_t next = 0;     // event
  absl::AnyInvocable<void() &&> wake;

  bool Wants(const ChunkId& id) const {
    if (session.has_value()) return id.ns == ns;
    return !tag.has_value() || LoadAt<uint32_t>(AsBytes(id.ns.view()).data()) == *tag;
  }
};

}  // namespace kvkeep::store_internal
