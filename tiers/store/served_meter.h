// ServedMeter: counts the chunks that answers hand to readers, by tier, owner and namespace.
//
// Owns the meters of namespaces. The store's lock protects it.
#pragma once

#include <vector>

#include "tiers/store/beyond_node.h"
#include "tiers/store/chunks.h"
#include "tiers/store/namespace_meters.h"
#include "tiers/store/owners.h"
#include "tiers/store/session_table.h"

namespace kvkeep::store_internal {

// The chunks that one answer hands to a reader, by the tier that they came from.
struct Served {
  struct Part {
    uint64_t chunks = 0, bytes = 0;
  };
  Part g2, g3, g4;
  void Add(Tier from, uint64_t bytes) {
    Part& part = from == Tier::kG2 ? g2 : from == Tier::kG3 ? g3 : g4;
    ++part.chunks;
    part.bytes += bytes;
  }
  uint64_t chunks() const { return g2.chunks + g3.chunks + g4.chunks; }
  uint64_t bytes() const { return g2.bytes + g3.bytes + g4.bytes; }
};

class ServedMeter {
 public:
  // All are borrowed. `beyond`: null if nothing lies beyond the node.
  ServedMeter(Chunks* chunks, const Owners* owners, BeyondNode* beyond)
      : meters(owners->count()), chunks_(*chunks), owners_(*owners), beyond_(beyond) {}

  // `session`: null if it was closed meanwhile.
  void Count(const Session* session, const NamespaceDigest& ns, const Served& served) STORE_LOCKED;
  // As Store::TakeForeignReads. Takes the lock.
  std::vector<ForeignRead> TakeForeignReads();

  NamespaceMeters meters STORE_GUARDED;

 private:
  Chunks& chunks_;
  const Owners& owners_;
  BeyondNode* const beyond_;
};

}  // namespace kvkeep::store_internal
