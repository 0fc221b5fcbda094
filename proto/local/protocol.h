// The local protocol, versions 1 to 9: how engine workers on the daemon's host talk to it over a
// Unix socket of type SEQPACKET and shared memory. Plain structs, little-endian, no padding.
//
// Messages. One message is a MessageHeader and its body, cut into packets of kMaxPacketBytes (the
// last one shorter); messages of one direction never interleave. A request gets exactly one reply
// with its id, unless its kind says "no reply". Replies may come out of order. A reply's body
// starts with a ReplyHead; an error's ends with its text (codes as in kvkeep.v1). A client that
// breaks the framing is disconnected, after a reply with id 0 that says why when possible. So is a
// client that sends more than 4 KiB in a message before Hello was answered, leaves a message half
// sent for the grace period, or passes a descriptor with anything but a RegisterMemory or
// RegisterGpuMemory of one packet. Before Hello was answered the kernel may refuse to pass
// descriptors.
//
// Handshake. The client sends Hello; the daemon answers Welcome, then at once the tenant's segments
// in Segments messages, each of one packet with at most kMaxDescriptorsPerPacket descriptors.
// Welcome brings two descriptors: the progress words (read-only, see ProgressWord) and the event
// socket (SEQPACKET), on which the daemon sends unrequested messages. On it the client sends only
// Pong and PutFilled. A peer that is not allowed gets a reply with PERMISSION_DENIED and its
// reason.
//
// A get is a leased lookup that also returns the places of the leased chunks; the client maps the
// segments read-only and reads in place. Bytes are valid while the lease lives. A client that was
// stopped for longer than the grace period loses its leases; the session word says so, and the
// client reads that word after the bytes. A put names runs of the session's staging memory, or of
// memory that the client registered; the daemon reads every byte once, into its place, and
// checksums the placed bytes.
//
// The end. The daemon first ends the session in its store, after which no put of it can be stored
// any more, and then closes its end of the socket, both directions at once. Do not reuse a put's
// memory until the put is answered, the daemon's end is closed, or the put's absolute deadline
// (PutUntil) has passed: until then the daemon may read the memory and store it. A client that
// gives a connection up shuts its own writing side, not the reading side, so that it sees the
// daemon's end close.
//
// Version 2 is version 1 and namespaces of other tenants: OpenNamespace::tenant_bytes,
// Welcome::shared_segments and the Segments after the tenant's own. In version 1 these fields are
// reserved: sent as zero, and ignored. Version 3 is version 2 and a LookupCost in the replies to
// Lookup and Get. Version 4 is version 3 and the requests of the GPU path, kRegisterGpuMemory to
// kGetToGpu; a daemon without that path refuses every registration, with the reason. Version 5 is
// version 4 and puts in parts, kPutInParts and kPutFilled. Version 6 is version 5 and staging
// memory that sessions share: see StagingRequest. Version 7 is version 6 and lookups that ask
// beyond the node, KeysRequest::asks_remote. Version 8 is version 7 and puts with an absolute
// deadline, kPutUntil and kPutFromGpuUntil, a ClockReading behind Welcome, kPutCopied for all puts
// from a GPU, and gets to a GPU that skip bytes, kSkippedBytes. Version 9 is version 8 and a
// ChunkLimit behind the ClockReading.
//
// The reader checks everything, and reads memory that the other side can write once. Structs are
// copied in and out with memcpy, as a body has no alignment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tiers/base/key.h"
#include "tiers/base/units.h"

namespace kvkeep::local {

inline constexpr uint32_t kMagic = 0x4c4b564b;  // "KVKL"
inline constexpr uint16_t kVersion = 9;         // the newest that this header describes
inline constexpr uint16_t kFirstVersion = 1;    // the oldest
inline constexpr uint16_t kPutInPartsSince = 5;
inline constexpr uint16_t kAsksRemoteSince = 7;
inline constexpr uint16_t kSharedStagingSince = 6;
inline constexpr uint16_t kDeadlinesSince = 8;
inline constexpr uint16_t kSkippedBytesSince = 8;
inline constexpr uint16_t kChunkLimitSince = 9;
inline constexpr size_t kMaxPacketBytes = 64 * kKiB;
inline constexpr size_t kMaxMessageBytes = 8 * kMiB;     // header included
inline constexpr size_t kMaxDescriptorsPerPacket = 253;  // SCM_MAX_FD
inline constexpr size_t kMaxClientNameBytes = 128;

enum class Kind : uint16_t {
  kHello = 1,
  kSegments = 2,          // daemon only, id 0, after Welcome
  kOpenNamespace = 3,     // OpenNamespace; reply: NamespaceReply
  kServerInfo = 4,        // empty body; reply: ServerInfoReply
  kStaging = 5,           // StagingRequest; reply: StagingReply and one descriptor
  kRegisterMemory = 6,    // RegisterMemory and one descriptor; reply: RegisterReply
  kUnregisterMemory = 7,  // UnregisterMemory; reply: empty
  kLookup = 8,            // KeysRequest; reply: LookupReply
  kGet = 9,               // KeysRequest, lease_mode not 0; reply: LookupReply with places
  kPut = 10,              // PutRequest; reply: PutReply
  kPutCopied = 11,        // daemon only: id of a put with durable chunks, from version 8 on of any
                          // from a GPU: its memory was read, the answer comes later
  kTouch = 12,            // KeysRequest; reply: CountReply
  kPrefetch = 13,         // KeysRequest; reply: PrefetchReply
  kRelease = 14,          // KeysRequest with releases only; reply: empty
  kDelete = 15,           // KeysRequest; reply: CountReply

  // From version 4 on.
  kRegisterGpuMemory = 16,    // RegisterGpuMemory, descriptors by its kind; RegisterGpuReply
  kUnregisterGpuMemory = 17,  // UnregisterGpuMemory; reply: empty
  kPutFromGpu = 18,           // GpuPutRequest; reply: PutReply
  kGetToGpu = 19,             // GpuGetRequest; reply: GpuGetReply

  // From version 5 on.
  kPutInParts = 20,  // PutInParts; reply: PutReply

  // From version 8 on.
  kPutUntil = 21,         // PutUntil; reply: PutReply
  kPutFromGpuUntil = 22,  // GpuPutUntil; reply: PutReply

  // On the event socket, id 0.
  kPing = 32,       // daemon; the client answers kPong within the grace period
  kPong = 33,       // client
  kDraining = 34,   // daemon: about to stop
  kRevoked = 35,    // daemon: the session is over, with the reason as text
  kPutFilled = 36,  // client, version 5: more of a put in parts is there
};
inline constexpr uint16_t kReplyBit = 0x8000;  // set in the kind of every reply

struct MessageHeader {
  uint32_t bytes = 0;  // of the message, this header included
  uint16_t kind = 0;
  uint16_t reserved = 0;
  uint64_t id = 0;  // chosen by the client, and echoed; a request's is not 0
};

struct ReplyHead {
  uint32_t code = 0;  // absl::StatusCode; if not 0, the rest of the body is the message
  uint32_t reserved = 0;
};

// ---------------------------------------------------------------- session

struct Hello {
  uint32_t magic = kMagic;
  uint16_t min_version = kFirstVersion;  // the daemon picks the highest version that both know
  uint16_t max_version = kVersion;
  uint32_t name_bytes = 0;  // client_name follows, UTF-8
  uint32_t reserved = 0;
};

// The layout of segments: segment n of the arena has `segment_bytes`; the last one may be shorter.
// A tenant has the segments [first_segment, first_segment + segments). After these come the
// segments of the tenants that let this one read: runs of ascending numbers, none twice,
// `shared_segments` together, for namespaces of those tenants.
struct Welcome {
  uint32_t version = kVersion;
  uint32_t first_segment = 0;
  uint64_t incarnation = 0;
  std::array<uint8_t, 16> session_token{};  // for status and logs; the socket is the authority
  std::array<uint8_t, 16> arena_uuid{};     // if the same after a restart, mappings stay valid
  uint64_t segment_bytes = 0;
  uint32_t segments = 0;
  uint32_t progress_words = 0;
  uint64_t max_keys_per_call = 0;
  uint64_t max_leases_per_session = 0;
  uint64_t max_leased_bytes = 0;
  uint64_t max_staging_bytes = 0;  // of one session
  uint64_t max_sessions = 0;
  uint32_t max_put_chunks = 0;  // of one put
  uint32_t max_registrations = 0;
  uint32_t grace_ms = 0;         // a client that answers no ping for this long is revoked
  uint32_t shared_segments = 0;  // version 2
};

// After Welcome, from version 8 on: the daemon's CLOCK_MONOTONIC when it answered. The client reads
// its own clock before it sends Hello and after it has Welcome. A reading outside of these two
// shows that a time namespace shifts a clock: then the client names no absolute deadlines.
// Otherwise it subtracts the time between the two from each absolute deadline that it names.
struct ClockReading {
  uint64_t monotonic_ns = 0;
};

// After ClockReading, from version 9 on: the largest payload of a chunk, as
// kvkeep.v1.Limits.max_payload_bytes. Before version 9 a client knows only the limit of all
// daemons.
struct ChunkLimit {
  uint64_t max_payload_bytes = 0;
};

struct Segments {
  uint32_t first_segment = 0;
  uint32_t count = 0;  // of descriptors with this packet; sizes are those of the files
};

// Declares a namespace, as kvkeep.v1.OpenNamespace. Followed by its texts, UTF-8, one after the
// other.
struct OpenNamespace {
  uint64_t bytes_per_part = 0;
  uint32_t tokens_per_chunk = 0;
  uint32_t parts = 0;
  uint16_t model_bytes = 0;
  uint16_t dtype_bytes = 0;
  uint16_t layout_bytes = 0;
  uint16_t hash_algorithm_bytes = 0;
  uint16_t hash_seed_bytes = 0;
  uint16_t tenant_bytes = 0;  // version 2: another tenant's name, as in kvkeep.v1
  uint32_t reserved = 0;
};
struct NamespaceReply {
  std::array<uint8_t, 16> digest{};
};

struct ServerInfoReply {
  uint64_t incarnation = 0;
  uint32_t state = 0;          // of kvkeep.v1.ServingState
  uint32_t version_bytes = 0;  // the daemon's version follows
};

// The progress memory: u32 words, written by the daemon only.
//   word 0           the session: 0 while it lives, 1 once its leases are revoked
//   word n >= 1      pieces of one chunk that are readable, from the first without a gap, the last
//                    one with header page and tail; with kProgressFailed set the chunk is lost: a
//                    miss
// The daemon calls FUTEX_WAKE on a word after each change, so a reader may FUTEX_WAIT on it
// (shared, works on a read-only mapping). Words are given back with the lease they belong to.
using ProgressWord = uint32_t;
inline constexpr ProgressWord kProgressFailed = 0x8000'0000;
inline constexpr uint32_t kNoProgressWord = 0;  // in a Place: the whole chunk is readable now
inline constexpr uint32_t kProgressWords = 65536;

// From version 6 on a session begins with little (0), and names a size once its puts wait for room.
// It gets at most its part, which shrinks as more sessions have some. A client whose puts have not
// used it for a while gives it back (kNoStaging). A client that gets none registers memory of its
// own and puts from that: do not fail a put for RESOURCE_EXHAUSTED.
inline constexpr uint64_t kNoStaging = UINT64_MAX;
struct StagingRequest {
  // 0: the size that a session begins with. Before version 6: 32 chunks of the session's largest
  // namespace, or the daemon's default if sizes vary; less if the daemon has little. Replaces the
  // present staging memory; FAILED_PRECONDITION while a put reads it.
  uint64_t bytes = 0;
};
struct StagingReply {
  // The bytes given: fewer than asked for if the daemon has little; at most max_staging_bytes. The
  // descriptor is read-write. 0, without a descriptor: given back.
  uint64_t bytes = 0;
};

struct RegisterMemory {  // a memfd (or shm file) of the client; the daemon reads it with pread
  uint64_t bytes = 0;
};
struct RegisterReply {
  uint32_t region = 0;  // not 0, and not reused in this session
  uint32_t reserved = 0;
};
struct UnregisterMemory {  // FAILED_PRECONDITION while a put reads it
  uint32_t region = 0;
  uint32_t reserved = 0;
};

// ---------------------------------------------------------------- lookup and get

// Followed by releases (ReleaseEntry), parts (u32) and keys (32 bytes), in this order, and by a
// RemoteAsk if `asks_remote`. Releases are done first and never fail the request: an unknown lease
// is ignored.
struct KeysRequest {
  std::array<uint8_t, 16> ns{};
  uint64_t client_request_id = 0;
  uint32_t keys = 0;
  uint16_t parts = 0;      // 0: all of the namespace
  uint8_t lease_mode = 0;  // of kvkeep.v1.LeaseMode
  uint8_t transient = 0;
  uint32_t releases = 0;
  uint32_t asks_remote = 0;  // version 7: 1 for a lookup or get that asks; reserved before
};
// As in kvkeep.v1.LookupRequest. The reply waits for the search, for at most `wait_us`.
struct RemoteAsk {
  uint32_t wait_us = 0;  // above 0
  uint32_t recompute_us_per_key = 0;
};
struct ReleaseEntry {
  uint64_t lease = 0;
  uint32_t keep_keys = 0;
  uint32_t reserved = 0;
};

// Followed by the two bitmaps of kvkeep.v1.LookupResponse (keys * row_bytes each, G2 then G3), then
// `places` Place, then `runs` ImageRun, and from version 3 on a LookupCost; if asked for, a
// RemoteReply and the bitmap of chunks on their way. A lookup has no places.
struct LookupReply {
  uint64_t lease = 0;  // 0: nothing was leased
  uint64_t leased_bytes = 0;
  uint32_t leading_keys = 0;
  uint32_t leased_keys = 0;
  uint32_t keys = 0;
  uint32_t row_bytes = 0;
  uint32_t places = 0;
  uint32_t runs = 0;
};
struct LookupCost {
  uint32_t promotion_us = 0;  // as in kvkeep.v1.LookupResponse
  uint32_t reserved = 0;
};
struct RemoteReply {  // as in kvkeep.v1.LookupResponse
  uint32_t keys = 0;
  uint32_t us = 0;
  uint32_t asked = 0;  // 1: there was a search
  uint32_t reserved = 0;
};
// One leased chunk, in the order keys x parts.
struct Place {
  uint32_t chunk = 0;  // key index * parts + part index
  uint32_t payload_bytes = 0;
  uint32_t tail_bytes = 0;
  uint32_t progress_word = kNoProgressWord;
  uint32_t first_run = 0;
  uint32_t runs = 0;
};
// A run of the chunk's image (header page, payload, tail: tiers/base/image.h), in image order.
struct ImageRun {
  uint32_t segment = 0;
  uint32_t blocks = 0;  // 4 KiB each
  uint64_t offset = 0;  // bytes, within the segment
};

// ---------------------------------------------------------------- put

// Followed by `chunks` PutChunk, `runs` PutRun, and the metadata tails one after the other. Chunks
// over the limit of reserved bytes wait for the session's earlier chunks, and for part of a second
// for other sessions' chunks; then they are rejected.
struct PutRequest {
  std::array<uint8_t, 16> ns{};
  uint32_t chunks = 0;
  uint32_t runs = 0;
};
enum PutFlags : uint32_t {
  kPutHasParent = 1,
  kPutDurable = 2,
  kPutTransient = 4,
  kPutNoG3 = 8,
  kPutHasChecksum = 16,  // XXH3-64 of the payload, which the daemon checks
};
struct PutChunk {
  std::array<uint8_t, 32> key{};
  std::array<uint8_t, 32> parent_key{};
  uint64_t checksum = 0;
  uint32_t part = 0;
  uint32_t payload_bytes = 0;  // the sum of its runs
  uint32_t tail_bytes = 0;
  uint32_t first_run = 0;
  uint32_t runs = 0;
  uint32_t flags = 0;
};
inline constexpr uint32_t kStagingRegion = 0;
struct PutRun {
  uint32_t region = kStagingRegion;
  uint32_t bytes = 0;
  uint64_t offset = 0;
};

// A put of one chunk that is sent before its bytes are where its runs say, so that the daemon
// copies bytes that are there while the client writes the next ones. Followed as PutRequest. A u64
// of the staging memory holds the number of payload bytes that are there, from the first: the
// client stores it (release) after them, never less than before, in the end all, and sends
// kPutFilled. If there is no room for that message, the client need not wait: the daemon looks by
// itself now and then.
//
// The daemon does not read bytes that are not there. The answer comes when all were copied, or
// earlier if the daemon does not want the chunk; with it the word and the runs are the client's
// again. If the word shrinks or exceeds the payload, or no further MiB comes in Welcome::grace_ms,
// the chunk is rejected as NOT_COPIED.
struct PutInParts {
  std::array<uint8_t, 16> ns{};
  uint32_t chunks = 1;
  uint32_t runs = 0;
  uint64_t filled_offset = 0;  // of the word, in the staging memory; a multiple of 8
};

// A PutRequest with an absolute deadline. After it the client may write the memory again, even if
// the daemon hangs or never answers. The daemon may still read the memory then, but it checks its
// clock after each piece, and rejects a chunk with a piece that was read late, as NOT_COPIED. The
// memory stays registered until the put is answered.
struct PutUntil {
  std::array<uint8_t, 16> ns{};
  uint32_t chunks = 0;
  uint32_t runs = 0;
  uint64_t deadline_ns = 0;  // of CLOCK_MONOTONIC, see ClockReading; 0: INVALID_ARGUMENT
};

// Followed by `chunks` PutAnswer, then their messages one after the other. From then on the daemon
// reads none of the client's memory.
struct PutReply {
  uint32_t chunks = 0;
  uint32_t reserved = 0;
};
struct PutAnswer {
  uint8_t status = 0;  // of kvkeep.v1.PutStatus
  uint8_t reason = 0;  // of kvkeep.v1.RejectReason
  uint16_t message_bytes = 0;
};

// ---------------------------------------------------------------- GPU memory

// A worker registers ranges of its GPU's memory; the daemon copies between them and the arena.
//
// Order. The client synchronises the stream that wrote a put's source, or that last used a get's
// target, before it sends the request. From then on it leaves those bytes alone until
//   - the reply has come, or kPutCopied for a put; then nothing reads or writes them any more, or
//   - the daemon's process has certainly ended (a pidfd of it, taken with the connection, is
//     readable). A closed socket is not enough: a copy may still be under way.
// The daemon cancels late copies and answers soon after the deadline. If the GPU's driver hangs, a
// copy cannot be ended and no reply comes: then only the second condition releases the bytes, and a
// client that cannot wait for it must not use them. The exception is a put by GpuPutUntil: its
// source may be written from its deadline on, as a chunk is sealed only if its copy was seen to end
// before. To free that memory the client must still wait for one of the two conditions.
//
// A chunk is sealed only if every byte came within the deadline; else it is rejected as NOT_COPIED,
// and no reader ever finds it. The daemon checksums the placed bytes.
//
// Refusals. UNIMPLEMENTED, FAILED_PRECONDITION: never possible here, for the reason in the text (no
// driver, MIG, a process id that is the daemon's own). UNAVAILABLE: the GPU or its driver broke,
// now or later. RESOURCE_EXHAUSTED: a limit. INVALID_ARGUMENT: the message is wrong. In each case
// the shared memory serves the same chunks.
enum GpuMemoryKind : uint32_t {
  kGpuIpcHandle = 1,   // of cuIpcGetMemHandle; no descriptor comes
  kGpuDescriptor = 2,  // of cuMemExportToShareableHandle; comes with the message
};
// Answered when the driver has opened the memory, or certainly will not, however long that takes:
// until then the client must not free it, even after its own deadline. A client ends a registration
// that was answered after that deadline by UnregisterGpuMemory.
struct RegisterGpuMemory {
  std::array<uint8_t, 16> gpu_uuid{};  // from cuDeviceGetUuid, as ordinals differ by process
  std::array<uint8_t, 64> handle{};    // kGpuIpcHandle, else zero
  uint64_t allocation_bytes = 0;       // of the whole allocation that is exported
  uint64_t offset = 0;                 // of the range in the allocation
  uint64_t bytes = 0;                  // of the range: at most RegisterGpuReply::max_bytes in all
  // Not 0. The client counts its registrations over all its connections, so that each has its own
  // number, and one of an earlier connection differs from all of this one.
  uint64_t generation = 0;
  uint32_t kind = 0;  // GpuMemoryKind
  uint32_t reserved = 0;
};
struct RegisterGpuReply {
  uint32_t registration = 0;       // not 0, and not reused in this session
  uint32_t max_runs = 0;           // of one put or get
  uint64_t max_bytes = 0;          // registered by one session
  uint32_t max_registrations = 0;  // of one session
  uint32_t max_timeout_ms = 0;     // of one put or get; a longer timeout is cut to it
};
// Answered when the handle is closed: only then may the client free the memory. FAILED_PRECONDITION
// while a put or get that names it is not answered.
struct UnregisterGpuMemory {
  uint32_t registration = 0;
  uint32_t reserved = 0;
  uint64_t generation = 0;
};

// A piece of a chunk's payload in the client's memory. All runs of one request are of one GPU, and
// each belongs to one chunk: if the chunks have more runs together than `runs`, that is
// INVALID_ARGUMENT.
struct GpuMemoryRun {
  uint32_t registration = 0;
  uint32_t bytes = 0;
  uint64_t offset = 0;      // in the registered range
  uint64_t generation = 0;  // of the registration; another value is INVALID_ARGUMENT
};

// Followed by `chunks` PutChunk, `runs` GpuMemoryRun, and the metadata tails one after the other.
// Otherwise like PutRequest.
struct GpuPutRequest {
  std::array<uint8_t, 16> ns{};
  uint32_t chunks = 0;
  uint32_t runs = 0;
  uint32_t timeout_ms = 0;  // from its receipt on; 0: RegisterGpuReply::max_timeout_ms
  uint32_t reserved = 0;
};

// Like GpuPutRequest, with an absolute deadline, after which the client may write the sources (see
// Order above). RegisterGpuReply::max_timeout_ms applies too.
struct GpuPutUntil {
  std::array<uint8_t, 16> ns{};
  uint32_t chunks = 0;
  uint32_t runs = 0;
  uint64_t deadline_ns = 0;  // as PutUntil's
};

// Followed by `chunks` GpuGetChunk and `runs` GpuMemoryRun. No lease is needed or left: the daemon
// holds each chunk while it is copied. From version 8 on a run whose registration is kSkippedBytes
// skips bytes of the payload; its offset and generation are 0. At least one run of a request is not
// of this kind.
inline constexpr uint32_t kSkippedBytes = 0;
struct GpuGetRequest {
  std::array<uint8_t, 16> ns{};
  uint64_t lease = 0;  // of this session: its chunks are found, even if deleted since; 0: none
  uint32_t chunks = 0;
  uint32_t runs = 0;
  uint32_t timeout_ms = 0;  // as GpuPutRequest's
  uint8_t transient = 0;    // 1: chunks that come from G3 need not stay in G2
  std::array<uint8_t, 3> reserved{};
};
struct GpuGetChunk {
  std::array<uint8_t, 32> key{};
  uint32_t part = 0;
  uint32_t payload_bytes = 0;  // the sum of its runs
  uint32_t first_run = 0;
  uint32_t runs = 0;
};
// Followed by `chunks` GpuGetAnswer, their messages one after the other, then the metadata tails of
// the copied chunks.
struct GpuGetReply {
  uint32_t chunks = 0;
  uint32_t reserved = 0;
};
enum GpuGetStatus : uint8_t {
  kGpuGetCopied = 1,
  kGpuGetMiss = 2,
  kGpuGetFailed = 3,  // with a message; its runs may hold anything, as for a miss from G3
};
struct GpuGetAnswer {
  uint8_t status = 0;  // GpuGetStatus
  uint8_t reserved = 0;
  uint16_t message_bytes = 0;
  uint32_t tail_bytes = 0;
};

// ---------------------------------------------------------------- the rest

struct CountReply {
  uint64_t chunks = 0;
};
struct PrefetchReply {
  uint64_t started_chunks = 0;
  uint64_t ready_chunks = 0;
};

static_assert(sizeof(MessageHeader) == 16 && sizeof(ReplyHead) == 8 && sizeof(Hello) == 16);
static_assert(sizeof(Welcome) == 120 && sizeof(KeysRequest) == 40 && sizeof(ReleaseEntry) == 16);
static_assert(sizeof(LookupReply) == 40 && sizeof(LookupCost) == 8);
static_assert(sizeof(Place) == 24 && sizeof(ImageRun) == 16);
static_assert(sizeof(PutRequest) == 24 && sizeof(PutChunk) == 96 && sizeof(PutRun) == 16);
static_assert(sizeof(OpenNamespace) == 32 && sizeof(ServerInfoReply) == 16);
static_assert(sizeof(PutReply) == 8 && sizeof(PutAnswer) == 4 && sizeof(PutInParts) == 32);
static_assert(sizeof(RegisterGpuMemory) == 120 && sizeof(RegisterGpuReply) == 24);
static_assert(sizeof(UnregisterGpuMemory) == 16 && sizeof(GpuMemoryRun) == 24);
static_assert(sizeof(GpuPutRequest) == 32 && sizeof(GpuGetRequest) == 40);
static_assert(sizeof(ClockReading) == 8 && sizeof(PutUntil) == 32 && sizeof(GpuPutUntil) == 32);
static_assert(sizeof(GpuGetChunk) == 48 && sizeof(GpuGetReply) == 8 && sizeof(GpuGetAnswer) == 8);

}  // namespace kvkeep::local
