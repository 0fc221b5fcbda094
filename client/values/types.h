// Arguments and results of the client library: of lookups, gets and puts.
//
// Plain values without any gRPC or generated type in them. Spans refer to memory of the caller and
// must stay valid until the call's callback has run (or the blocking call has returned).
#pragma once

#include <absl/container/inlined_vector.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/types/span.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/key.h"

namespace kvkeep::client {

// Parts of each key that a call is about, none twice. Empty: all parts of the namespace.
using Parts = absl::Span<const uint32_t>;
using Keys = absl::Span<const ChunkKey>;     // in prefix order: head of the prompt first
using Deadline = std::chrono::milliseconds;  // from the call on; zero: the client's default

// How bytes travel between this process and the daemon.
enum class Path {
  kGrpc,   // streams, over the daemon's Unix socket or TCP
  kLocal,  // shared memory and a socket of small messages; same host only
};
enum class PathChoice { kAuto, kGrpc, kLocal };  // kAuto: local if the daemon offers it
absl::string_view PathName(Path path);

struct PathInfo {
  Path path = Path::kGrpc;  // the path that calls take now
  std::string why;          // for people: "local: SOCKET", "grpc: no local socket at ..."
};

// The meaning and owner of the bytes under a key. All fields go into the namespace's digest.
struct NamespaceSpec {
  std::string model;  // required
  std::string dtype;
  std::string layout;
  uint32_t tokens_per_chunk = 0;  // required
  uint64_t bytes_per_part = 0;    // every put must have exactly this size; 0: sizes vary
  uint32_t parts = 1;
  std::string hash_algorithm;
  std::string hash_seed;
  // The name of another tenant that lets ours read ("default": the default tenant). Puts and
  // deletes there are PERMISSION_DENIED. Empty: our own tenant.
  std::string tenant = {};

  bool operator==(const NamespaceSpec&) const = default;
};

enum class LeaseMode {
  kNone,        // only report
  kLeadingRun,  // lease the leading keys with all of their parts
  kAllPresent,  // lease every chunk that is there
};

// A value of LookupOptions::recompute_per_key: the caller cannot compute the bytes. Then even a
// single missing chunk is searched for; otherwise at least eight, or two whose cost is known.
inline constexpr std::chrono::microseconds kNotComputable = std::chrono::seconds(60);

struct LookupOptions {
  Parts parts;
  LeaseMode lease = LeaseMode::kNone;
  bool transient = false;  // read once: chunks promoted for it are the first to be evicted
  // How long, at most, to search beyond the node for keys after the leading ones, which are then
  // brought into DRAM. 0: no search; nor if nothing lies beyond the node. At most 10 s.
  std::chrono::microseconds remote_wait{0};
  // Time to recompute a missing key: a chunk that takes over 0.7 of that is not brought. 0: not
  // known; at most kNotComputable.
  std::chrono::microseconds recompute_per_key{0};
  Deadline deadline{0};
};

enum class GetStatus {
  kHit,  // the destination holds the whole bytes (or range) of exactly one put
  kMiss,
  // The bytes did not match their checksums: use none of them. On the local path only this process
  // finds that; a chunk that the daemon found damaged is a kMiss there.
  kCorrupt,
  kBusy,        // present, but there is no room in DRAM to read it into now
  kTooSmall,    // the destination cannot hold it; payload_bytes says what it needs
  kUnfinished,  // the call ended before this chunk was whole; GetResult::error says why
};
absl::string_view GetStatusName(GetStatus status);

struct GetOutcome {
  GetStatus status = GetStatus::kUnfinished;
  uint64_t payload_bytes = 0;  // of the whole chunk
  uint64_t bytes = 0;          // delivered to the destination; 0 unless kHit
  std::string metadata;        // if asked for
};

class Lease;

struct GetOptions {
  Parts parts;
  const Lease* lease = nullptr;  // keys must then be the lease's keys [first_key, ...)
  uint32_t first_key = 0;
  uint32_t first_piece = 0;  // range in pieces of 1 MiB, the same for every chunk
  uint32_t pieces = 0;       // 0: to the end
  bool metadata = false;
  bool transient = false;
  bool verify = true;  // compare XXH3 of the delivered bytes with the daemon's
  // Without a lease, chunks that the node does not have are searched for beyond it (G4), as by a
  // lookup in mode kAllPresent, and got once they have come. The search takes at most this long,
  // and at most half of the deadline, so that chunks of the node are got in any case. 0: they are
  // misses at once, as they are if nothing lies beyond the node. At most 10 s.
  std::chrono::microseconds remote_wait = std::chrono::seconds(1);
  Deadline deadline{0};
  // Destinations of the bytes. Either one span per chunk, in the order keys x parts; or a function
  // that is asked once for each present chunk, on the thread that delivers it, for at least `bytes`
  // bytes. An empty span skips the chunk (kTooSmall). Destinations of chunks that are not kHit may
  // hold anything afterwards.
  absl::Span<const std::span<std::byte>> destinations;
  // If not empty, the number of `destinations` of each chunk. A chunk's bytes fill them one after
  // the other; the bytes for a span whose data() is null are skipped.
  absl::Span<const uint32_t> destination_runs;
  absl::AnyInvocable<std::span<std::byte>(size_t chunk, uint64_t bytes)> allocate;
};

struct GetResult {
  std::vector<GetOutcome> chunks;  // in the order keys x parts
  absl::Status error;              // not OK: the call broke off; finished chunks are still good
};

enum class PutStatus {
  kStored,
  kPresent,     // was there already, or another writer won: as good as stored
  kRejected,    // not stored, or not durable: the message says why
  kUnfinished,  // the call ended first; PutResult::error says why
};
absl::string_view PutStatusName(PutStatus status);

struct PutChunk {
  ChunkKey key;
  uint32_t part = 0;
  // The payload, in one or several runs. Not copied: it is read until the put's callback runs.
  absl::InlinedVector<std::span<const std::byte>, 1> runs;
  std::optional<ChunkKey>
      parent_key;        // the key before this one in its prefix: keeps neighbours together
  std::string metadata;  // at most 16 KiB
};

struct PutOptions {
  bool durable = false;    // answered after the chunks are on stable storage
  bool transient = false;  // first to be evicted
  bool no_g3 = false;      // keep in DRAM only
  bool checksum = false;   // also send XXH3 of each payload, which the daemon checks
  Deadline deadline{0};
};

struct PutOutcome {
  PutStatus status = PutStatus::kUnfinished;
  std::string message;  // why rejected
};

struct PutResult {
  std::vector<PutOutcome> chunks;  // in the order of the put
  absl::Status error;              // not OK: the call broke off; finished chunks are still good
};

struct PrefetchResult {
  uint64_t started_chunks = 0;  // being read from G3 now
  uint64_t ready_chunks = 0;    // in G2 already
};

struct ServerLimits {
  uint64_t max_keys_per_call = 0;  // keys x parts of a request; 0: the daemon did not say
  uint64_t max_parts_per_call = 0;
  uint64_t max_payload_bytes = 0;  // of a chunk: the daemon never stores a larger one
  uint64_t max_metadata_bytes = 0;
  uint64_t max_frame_bytes = 0;
  uint64_t max_leases_per_session = 0;
  uint64_t max_leased_bytes = 0;
  uint64_t max_sessions = 0;
};

struct ServerInfo {
  std::string version;
  uint64_t incarnation = 0;
  std::string state;  // "recovering", "serving", "draining" or "unknown"
  ServerLimits limits;
  std::vector<std::string> features;
};

}  // namespace kvkeep::client
