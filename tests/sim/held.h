// Holdings of one of the simulation's clients: readers, puts in progress, leases. Plain structs.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tiers/store/store.h"

namespace kvkeep {

struct HeldReader {
  uint64_t name = 0;
  ChunkReader reader;
  size_t pieces_left = 0;  // not reported yet
  bool failed = false;
  bool must = false;     // not fail
  bool durable = false;  // a client was told so: may not fail, unless its device is away
  bool ready() const { return pieces_left == 0 && !failed; }
  uint64_t version = 0;  // found by its bytes
  uint64_t oldest = 0;   // versions up to this one were deleted before the read began

  // Returns this many bytes of the payload from `offset` on. REQUIRES: these pieces are ready.
  std::vector<std::byte> Payload(uint64_t offset, uint64_t size) const {
    std::vector<std::byte> bytes;
    while (bytes.size() < size) {
      const auto run = reader.Payload(offset + bytes.size(), size - bytes.size());
      bytes.insert(bytes.end(), run.begin(), run.end());
    }
    return bytes;
  }
};
struct HeldPut {
  Reservation reservation;
  uint64_t name = 0;
  uint64_t version = 0;
  std::vector<std::byte> payload;
  std::string tail;
  bool durable = false;
};
// Holdings of a client that stopped responding: its session was revoked.
struct Stalled {
  SessionToken token;
  std::vector<std::shared_ptr<HeldReader>> readers;
  std::vector<HeldPut> puts;
};
// Keys of a lookup: from the first on, of one namespace.
struct Looked {
  size_t space = 0;    // of its first part
  uint64_t first = 0;  // key
  std::vector<ChunkKey> keys;
  std::vector<PartId> parts;
};
struct HeldLease {
  LeaseId id;
  uint32_t keys = 0;
  std::map<uint64_t, uint32_t> names;  // promised ones, with their index in the lookup
  std::set<uint64_t> unsure;           // of these, as the lookup found them: put anew since or not
};

}  // namespace kvkeep
