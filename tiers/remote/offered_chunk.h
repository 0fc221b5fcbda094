// Chunks that a node gives to another one of the fleet before it is taken away, and the other node
// as their taker.
#pragma once

#include <absl/container/flat_hash_set.h>
#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/image.h"
#include "tiers/base/key.h"

namespace kvkeep {

using TenantTags = absl::flat_hash_set<uint32_t>;  // by TenantTagOf

// Takes the names of chunks, one by one. Returns whether it wants more.
using TakeName = absl::FunctionRef<bool(const ChunkId&)>;

struct OfferedChunk {
  ChunkId id;
  ImageShape shape;

  bool operator==(const OfferedChunk&) const = default;
};

// What a node has to offer.
struct HotChunks {
  std::vector<OfferedChunk> hottest;  // the hottest first
  uint64_t all = 0;                   // chunks that it might have named; more than were named
};

// What has become of one offered chunk at its taker.
enum class OfferEnd : uint8_t { kRefused = 0, kHad = 1, kTaken = 2 };

struct OfferAnswer {
  std::vector<OfferEnd> chunks;  // one for each, in the order of the offer
  bool full = false;             // there is no room for more chunks

  bool operator==(const OfferAnswer&) const = default;
};

using OfferCallback = absl::AnyInvocable<void(absl::StatusOr<OfferAnswer>) &&>;

// Another node, which takes chunks by reading them from this one. Thread-safe.
class OfferTaker {
 public:
  virtual ~OfferTaker() = default;
  virtual const std::string& name() const = 0;  // the node's, in the fleet
  // Returns whether the node answered lately. Never waits.
  virtual bool reachable() const = 0;
  // Offers chunks, the hottest first. `done` is called once, later, on any thread, never inside the
  // call, soon after the deadline at the latest. ResourceExhausted: the node takes as many as it
  // may at once. Unavailable: it does not answer. Any other error: it takes nothing. REQUIRES: some
  // chunks, all of one namespace.
  virtual void Offer(std::vector<OfferedChunk> chunks, MonotonicTime deadline,
                     std::function<void(absl::StatusOr<OfferAnswer>)> done) = 0;
};

}  // namespace kvkeep
