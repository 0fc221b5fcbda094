// The chunks that a request of kvkeep.v1 names by its namespace_digest, keys and parts.
#pragma once

#include <absl/status/statusor.h>

#include "server/requests/convert.h"
#include "tiers/base/status_macros.h"
#include "tiers/store/store.h"

namespace kvkeep {

template <typename Request>
absl::StatusOr<OwnedChunkSet> ParseNamedChunks(const Store& store, const SessionToken& session,
                                               const Request& request) {
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest ns,
                          ParseNamespaceDigest(request.namespace_digest()));
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceSpec spec, store.FindNamespace(session, ns));
  return ParseChunkSet(ns, request.keys(), request.parts(), spec,
                       store.options().max_keys_per_call);
}

}  // namespace kvkeep
