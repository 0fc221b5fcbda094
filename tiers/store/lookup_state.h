// What a lookup, and a lease in the making, know while they last: of core.h, for the few files that
// do them.
#pragma once

#include <memory>
#include <vector>

#include "tiers/store/core.h"

namespace kvkeep::store_internal {

// What a call is about and, slice by slice, what is found of it.
struct Core::LookupState {
  LookupState(const ChunkSet& set, const StoreOptions& options);
  ChunkId id(size_t chunk) const { return chunks.id(chunk); }
  const ChunkSet& chunks;
  std::vector<Link> found;  // by chunk: key index * parts + part index
  std::vector<Link> chain;  // for a slice, as the policies are to see it
  std::vector<uint32_t> ends_of_device;  // in chain, where the links of a device end
  std::vector<uint64_t> g2_parts, g3_parts;
  std::vector<uint64_t> coming_parts;  // coming from beyond the node; empty: nobody asks or gets
  uint64_t parts_of(size_t key) const {
    return g2_parts[key] | g3_parts[key] | (coming_parts.empty() ? 0 : coming_parts[key]);
  }
  uint32_t leading_keys = 0;
  uint32_t reachable_keys = 0;  // and those behind that are coming; as many, if that is empty
  uint64_t absent = 0;          // chunks that are in no tier
  bool unadmitted = false;  // some of them is
  bool unused = false;      // some of them is to be offered beyond the node, now that it is used
  RemoteAges::Mark step = RemoteAges::kUnknown;  // RemoteTier::WantsUsed
  ReadQueue::Requester requester;
  // By device, of the leading keys; empty: nobody asks.
  struct ToRead {
    bool coming = false;  // some of it has been asked for already
    bool others = false;  // by another requester, and it still waits
    uint64_t bytes = 0;   // of what has not
  };
  std::vector<ToRead> to_read;
};

// What one answer hands to a reader, by where it lay before.
struct Core::Served {
  struct Part {
    uint64_t chunks = 0, bytes = 0;
  };
  Part g2, g3, g4;
  void Add(Tier from, uint64_t bytes) {
    Part& part = from == Tier::kG2 ? g2 : from == Tier::kG3 ? g3 : g4;
    ++part.chunks;
    part.bytes += bytes;
  }
};

// A lease in the making: its pins are not the session's yet.
struct Core::Grant {
  void Reserve();
  const LookupRequest& request;
  LookupState& lookup;
  std::shared_ptr<LeaseHolder> holder;  // the session's; the chunks may be another tenant's
  LookupResult result;
  std::vector<Lease::Entry> entries;
  std::vector<bool> pinned;  // by entry
  uint32_t keys = 0;
  uint64_t bytes = 0;          // of images
  uint64_t payload_bytes = 0;  // of what is pinned
  Served served;               // with its places
  bool shortened = false;
};

}  // namespace kvkeep::store_internal
