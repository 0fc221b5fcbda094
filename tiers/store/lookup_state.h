// LookupState: the chunks that a call asks for and, slice by slice, what is found of them
// (finder.h).
//
// One call owns it, on its stack. Its memory is taken before the lock.
#pragma once

#include <cstdint>
#include <vector>

#include "tiers/policy/eviction_policy.h"
#include "tiers/store/read_queue.h"
#include "tiers/store/remote_ages.h"
#include "tiers/store/store_options.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

struct LookupState {
  using Link = EvictionPolicy::ChainLink;

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
  MonotonicTime told_at{0};  // when the policies were told
  uint32_t leading_keys = 0;
  uint32_t reachable_keys = 0;  // leading keys, and those behind them that `coming_parts` has
  uint64_t absent = 0;          // chunks that are in no tier
  bool unadmitted = false;  // a chunk that was found is unadmitted
  bool unused = false;      // a chunk that was found is to be offered beyond the node
  RemoteAges::Mark step = RemoteAges::kUnknown;  // RemoteTier::WantsUsed
  ReadQueue::Requester requester;
  // The reads that the leading keys still need, by device; empty: nobody asks.
  struct ToRead {
    bool coming = false;  // a part has been asked for already
    bool others = false;  // by another requester, and it still waits
    uint64_t bytes = 0;   // of the chunks that nobody has asked for
  };
  std::vector<ToRead> to_read;
};

}  // namespace kvkeep::store_internal
