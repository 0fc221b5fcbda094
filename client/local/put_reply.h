// Flags and replies of the local path's puts, from the caller's memory and from a GPU's. Internal;
// no state.
#pragma once

#include <absl/status/statusor.h>

#include <vector>

#include "client/local/session.h"
#include "client/values/types.h"

namespace kvkeep::client {

uint32_t PutFlagsOf(const PutOptions& options, bool has_parent);
// Returns the outcomes of the chunks of one message, in order. INTERNAL: the reply breaks the
// protocol.
absl::StatusOr<std::vector<PutOutcome>> ReadPutReply(LocalSession::Reply& reply, size_t chunks);
// Returns the call's answer: an error alone if no chunk has an outcome.
absl::StatusOr<PutResult> PutResultOf(PutResult result);

}  // namespace kvkeep::client
