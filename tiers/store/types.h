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

// How many parts one call may ask for. A row of the presence bitmap fits one word.
inline constexpr size_t kMaxPartsPerCall = 64;

// The meaning of the bytes under a key. The digest covers all fields and the tenant's name. Texts
// are UTF-8.
struct NamespaceSpec {
  std::string model;
  std::string dtype;
  std::string layout;
  uint32_t tokens_per_chunk = 0;
  uint64_t bytes_per_part = 0;  // 0: sizes vary
  uint32_t parts = 1;
  std::string hash_algorithm;
  std::string hash_seed;
  // The name of the owner; "default": the tenant without a name; empty: the session's tenant.
  std::string tenant = {};

  absl::Status Validate() const;  // names the field and its limit
  // Returns the tenant's tag, then the first 12 bytes of SHA-256 over all fields, length-prefixed,
  // and the tenant's name if it has one.
  NamespaceDigest Digest(const std::string& tenant) const;
};

// The rights of a session to its tenant's chunks. Lookup, touch, prefetch and get are reads, as
// they tell of chunks. Put and delete are writes.
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

// Keys x parts, key-major: the chunks of a call. It has views: the caller keeps the memory.
struct ChunkSet {
  NamespaceDigest ns;
  std::span<const ChunkKey> keys;  // prefix order, head first
  std::span<const PartId> parts;   // at most kMaxPartsPerCall, all of the namespace's, none twice

  // Returns the chunk by its number: key index * parts + part index.
  ChunkId id(size_t chunk) const {
    return {ns, keys[chunk / parts.size()], parts[chunk % parts.size()]};
  }
};

// How a lookup may search beyond the node (Store::LookupOrSearch, AskBeyond).
struct BeyondOptions {
  // How long the search may take. If `recompute_per_key` is not known, a get waits for this time
  // again, but at least kLeastWaitForPieces, for the chunks that were found, counted from the last
  // piece of any of them that came. 0: there is no search.
  std::chrono::nanoseconds wait{0};
  // How long the caller takes to compute a missing key. Chunks that would take longer to come are
  // not brought, and reads that have begun end when that time is over. 0: not known.
  std::chrono::nanoseconds recompute_per_key{0};

  bool asks() const { return wait.count() > 0; }
  absl::Status Validate() const;  // names the field of kvkeep.v1.LookupRequest, and its limit
};

struct LookupRequest {
  ChunkSet chunks;
  LeaseMode lease_mode = LeaseMode::kNone;
  uint64_t client_request_id = 0;  // not 0: a repeat gets the same lease
  bool transient = false;
  // With a lease: fill LookupResult::places. The lookup then counts the chunks that are present or
  // on their way from beyond the node, whoever asked for them.
  bool want_places = false;
  BeyondOptions beyond;
  // The request was looked up before, and the missing chunks were searched for
  // (Store::LookupOrSearch). So it is charged, counted and told to the policies already.
  bool after_search = false;
};

// The place of a leased chunk in G2. The chunk stays there while its lease lives.
struct ChunkPlace {
  uint32_t chunk = 0;  // key index * parts + part index
  ImageShape shape;
  ExtentList extents;
  bool readable = false;  // false: it is on its way; call Read, then ChunkReader::WhenReady
};

struct LookupResult {
  // One word per key. Bit p is set if parts[p] of that key is there.
  std::vector<uint64_t> g2_parts;
  std::vector<uint64_t> g3_parts;
  uint32_t leading_keys = 0;
  LeaseId lease;
  bool is_new_lease = false;  // not that of an earlier request with the same client_request_id
  uint32_t leased_keys = 0;
  uint64_t leased_bytes = 0;
  std::chrono::nanoseconds promotion_time{0};  // estimate: until the leading keys are all in G2
  // Keys behind the leading ones that are on their way here from beyond the node, if `beyond` asks.
  // They are leased like those, but have only space and no bytes yet. A chunk that does not come is
  // a miss.
  uint32_t beyond_keys = 0;
  std::vector<uint64_t> coming_parts;       // as g2_parts; empty: `beyond` did not ask
  std::chrono::nanoseconds beyond_time{0};  // estimate: until the beyond_keys are all in G2
  std::vector<ChunkPlace> places;  // of every leased chunk, in the order keys x parts; if wanted
};

struct PrefetchResult {
  uint64_t started_chunks = 0;
  uint64_t ready_chunks = 0;
};

// The chunks and sessions of one namespace.
struct NamespaceUse {
  NamespaceDigest digest;  // all zero: the namespaces beyond the number that is told apart
  std::string tenant;      // empty: the owner is not configured
  std::string model;       // as a session declared it that has it open; empty: none has it open
  uint64_t sessions = 0;   // sessions that have it open
  uint64_t chunks = 0, g2_bytes = 0, g3_bytes = 0;
};

struct EvictRequest {
  bool of_g3 = false;  // false: chunks of G2
  std::string tenant;  // as status shows it; empty: all tenants in turn
  uint64_t bytes = 0;  // evict at least this many, if there are as many
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
  kNotCopied,  // local path: the bytes did not come, or came too late
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
  bool asks_again = false;  // over the limit of reserved bytes it gets ask_again, not a rejection
};

}  // namespace kvkeep
