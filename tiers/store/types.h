// Values that cross the store's interface: requests, answers, limits.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/image.h"
#include "tiers/base/key.h"
#include "tiers/store/events.h"
#include "tiers/store/store_options.h"

namespace kvkeep {

using SessionToken = Digest<struct SessionTokenTag, 16>;  // unguessable
using LeaseId = StrongInt<struct LeaseIdTag, uint64_t>;   // 0: none
using StatusCallback = absl::AnyInvocable<void(absl::Status) &&>;

// Parts that one call may ask for; a row of the presence bitmap fits one word.
inline constexpr size_t kMaxPartsPerCall = 64;

// What the bytes under a key mean. The digest covers all, and the tenant's name. Texts are UTF-8.
struct NamespaceSpec {
  std::string model;
  std::string dtype;
  std::string layout;
  uint32_t tokens_per_chunk = 0;
  uint64_t bytes_per_part = 0;  // 0: sizes vary
  uint32_t parts = 1;
  std::string hash_algorithm;
  std::string hash_seed;
  // The owner: a tenant's name, "default" for the one without a name. Empty: the session's tenant.
  std::string tenant = {};

  absl::Status Validate() const;  // names the field and its limit
  // The tenant's tag, then the first 12 bytes of SHA-256 over all fields, length-prefixed, and the
  // tenant's name if it has one.
  NamespaceDigest Digest(const std::string& tenant) const;
};

// What a session may do with its tenant's chunks. Lookup, touch, prefetch and get are reads, as
// they tell of chunks; put and delete are writes.
struct Grants {
  bool read = true;
  bool write = true;

  bool operator==(const Grants&) const = default;
};

struct SessionInfo {
  std::string client_name;  // UTF-8
  std::string peer;
  TenantId tenant;
  Grants grants;
  absl::Status Validate(size_t tenants) const;  // `tenants`: how many there are
};

enum class LeaseMode : uint8_t { kNone, kLeadingRun, kAllPresent };

// Keys x parts, key-major: what most calls are about. Views: the caller keeps the memory.
struct ChunkSet {
  NamespaceDigest ns;
  std::span<const ChunkKey> keys;  // prefix order, head first
  std::span<const PartId> parts;   // at most kMaxPartsPerCall, all of the namespace's, none twice

  // By number: key x parts + part.
  ChunkId id(size_t chunk) const {
    return {ns, keys[chunk / parts.size()], parts[chunk % parts.size()]};
  }
};

// What a lookup may ask of what lies beyond the node (Store::LookupOrSearch, AskBeyond).
struct BeyondOptions {
  // The search may take so long; and a get so long from then on for what was found, when the cost
  // below is not known. 0: nothing is asked.
  std::chrono::nanoseconds wait{0};
  // What a key costs the caller that is not there. What would take longer to come is left there,
  // and what was begun ends when that time is over. 0: not known.
  std::chrono::nanoseconds recompute_per_key{0};

  bool asks() const { return wait.count() > 0; }
  absl::Status Validate() const;  // names the field of kvkeep.v1.LookupRequest, and its limit
};

struct LookupRequest {
  ChunkSet chunks;
  LeaseMode lease_mode = LeaseMode::kNone;
  uint64_t client_request_id = 0;  // not 0: a repeat gets the same lease
  bool transient = false;
  // With a lease: fill LookupResult::places. Counts all that is present, and what is on its way
  // from beyond the node, whoever asked for it.
  bool want_places = false;
  BeyondOptions beyond;
  // The request was looked up before, and what was missing was searched for
  // (Store::LookupOrSearch): it is charged, counted and told to the policies already.
  bool after_search = false;
};

// Where a leased chunk lies in G2. It stays there while its lease lives.
struct ChunkPlace {
  uint32_t chunk = 0;  // key index * parts + part index
  ImageShape shape;
  ExtentList extents;
  bool readable = false;  // else it is on its way: Read, then ChunkReader::WhenReady
};

struct LookupResult {
  // One word per key; bit p: parts[p] of that key is there.
  std::vector<uint64_t> g2_parts;
  std::vector<uint64_t> g3_parts;
  uint32_t leading_keys = 0;
  LeaseId lease;
  uint32_t leased_keys = 0;
  uint64_t leased_bytes = 0;
  std::chrono::nanoseconds promotion_time{0};  // estimate: until the leading keys are all in G2
  // Keys behind the leading ones that are on their way here from beyond the node, if `beyond` asks.
  // Leased like those, they hold space, not bytes: what does not come is a miss.
  uint32_t beyond_keys = 0;
  std::vector<uint64_t> coming_parts;       // as g2_parts; empty: it did not ask
  std::chrono::nanoseconds beyond_time{0};  // estimate: until they are all in G2
  std::vector<ChunkPlace> places;  // of every leased chunk, in the order keys x parts; if wanted
};

struct PrefetchResult {
  uint64_t started_chunks = 0;
  uint64_t ready_chunks = 0;
};

// What one namespace has.
struct NamespaceUse {
  NamespaceDigest digest;  // all zero: all namespaces beyond the number that is told apart
  std::string tenant;      // empty: the owner is not configured
  std::string model;       // as a session that has it open declared it; empty: no session has
  uint64_t sessions = 0;   // sessions that have it open
  uint64_t chunks = 0, g2_bytes = 0, g3_bytes = 0;
};

struct EvictRequest {
  bool of_g3 = false;  // else of G2
  std::string tenant;  // as status shows it; empty: all tenants in turn
  uint64_t bytes = 0;  // evict at least so many, if there are
};
struct EvictResult {
  uint64_t chunks = 0, bytes = 0;
};

enum class RejectReason : uint8_t {
  kNone,
  kNoSpace,  // all of G2 is leased, in flight or reserved
  kLimit,
  kWrongSize,
  kWrongChecksum,
  kDraining,
  kNotDurable,
  kNotCopied,  // local path: the bytes did not come, or too late
};

struct PutRequest {
  NamespaceDigest ns;
  ChunkKey key;
  PartId part;
  ImageShape shape;
  std::optional<ChunkKey> parent;
  bool transient = false;
  bool no_g3 = false;
  bool durable = false;
  bool asks_again = false;  // over the limit of reserved bytes: ask_again, and no rejection counted
};

}  // namespace kvkeep
