// The bulk protocol, version 1: gets and puts of a session by frames over a byte stream: a Unix
// socket, or TCP, with TLS where listen.tcp has it. It moves the messages of kvkeep.v1's Get and
// Put with less work a byte than HTTP/2. Sessions, namespaces, lookups and leases are gRPC's, and a
// session's token is valid here as it is there.
//
// Frames. Each is a head of 16 bytes, a Protobuf message, and a payload:
//
//   0  u32  kind (FrameKind)
//   4  u32  message_bytes: at most 4 MiB; of Hello 4 KiB, of Put 64 KiB
//   8  u64  payload_bytes: 0, except of Chunk and Put
//
// All numbers are little-endian.
//
// A connection. The client sends Hello and waits for Welcome. Then it makes calls, one after the
// other; each ends with an End of the daemon. An End where none is due ends the connection: it says
// why, and the daemon closes. Over TLS the client offers the ALPN protocol "kvkeep-bulk/1".
//
// A get: the client sends Get. The daemon sends Chunk frames as a Get stream of gRPC has them (up
// to 4 whole pieces each, which begin at `offset` of the chunk), then End.
//
// A put: the client sends a Put frame for each chunk, with its whole payload, then PutDone. The
// first Put has PutFrame.stream. Behind the payload come the XXH3-64 checksums of its pieces of 1
// MiB, 8 bytes each, which payload_bytes includes: the daemon compares them with those of the bytes
// in place, and rejects the chunk as WRONG_CHECKSUM if they differ. The daemon sends a Result for
// each chunk, in order, while the client still sends; it reads no further chunk while 64 results
// wait for the client. After the last, and PutDone, it sends End. If a put fails as a whole, End
// comes before that, and the connection ends.
//
// The reader checks everything. A frame that breaks these rules ends the connection.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tiers/base/units.h"

namespace kvkeep::bulk {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint32_t kVersion = 1;
inline constexpr char kAlpn[] = "kvkeep-bulk/1";
inline constexpr size_t kHeadBytes = 16;
inline constexpr uint32_t kMaxMessageBytes = 4 * kMiB;
inline constexpr uint32_t kMaxHelloBytes = 4 * kKiB;

enum class FrameKind : uint32_t {
  kHello = 0x314b4c42,  // "BLK1"; BulkHello, by the client
  kWelcome = 2,         // BulkWelcome, by the daemon
  kGet = 3,             // GetRequest, by the client
  kChunk = 4,           // GetFrame without `payload`, by the daemon
  kPut = 5,             // PutFrame without `payload` and `abort`, by the client
  kPutDone = 6,         // no message, by the client
  kResult = 7,          // PutResult, by the daemon
  kEnd = 8,             // BulkEnd, by the daemon
};

struct FrameHead {
  FrameKind kind{};
  uint32_t message_bytes = 0;
  uint64_t payload_bytes = 0;
};
static_assert(sizeof(FrameHead) == kHeadBytes);

// Returns a frame's head.
std::string EncodeHead(FrameKind kind, size_t message_bytes, uint64_t payload_bytes);
FrameHead DecodeHead(std::span<const std::byte, kHeadBytes> bytes);

}  // namespace kvkeep::bulk
