// KeysCall: a parsed request about keys (lookup, get, touch, prefetch, release, delete). The keys
// stay in the request's body; the vectors are reused for the next request. Checks that the store
// makes are left to the store.
#pragma once

#include <absl/status/status.h>

#include <span>
#include <vector>

#include "proto/local/protocol.h"
#include "tiers/store/types.h"

namespace kvkeep {

class KeysCall {
 public:
  // InvalidArgument names the field. `kind`: one of the six. `body` must live until the last use.
  absl::Status Parse(local::Kind kind, std::span<const std::byte> body);
  // Names all `parts` of the namespace. For a request that names none.
  void NameAllParts(uint32_t parts);

  bool names_parts() const { return !parts_.empty(); }
  NamespaceDigest ns() const { return {.bytes = request_.ns}; }
  std::span<const local::ReleaseEntry> releases() const { return releases_; }
  bool asks_remote() const { return ask_.wait_us > 0; }
  LookupRequest lookup() const;
  ChunkSet chunks() const { return {.ns = ns(), .keys = keys_, .parts = parts_}; }

 private:
  absl::Status CheckRemote(local::Kind kind) const;

  local::KeysRequest request_;
  local::RemoteAsk ask_;  // no wait: it does not ask beyond the node
  std::vector<local::ReleaseEntry> releases_;
  std::vector<PartId> parts_;
  std::span<const ChunkKey> keys_;  // in the body
};

}  // namespace kvkeep
