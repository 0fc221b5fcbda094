// Actions of a hostile client, as bytes: the input of the fuzz target local_protocol_fuzz.
//
// A script is a row of steps, each an opcode and its arguments; any bytes are a script. RunScript
// plays it to MessageAssembler and LocalPeer over a store in memory, and ends the process
// (KVKEEP_CHECK) if a promise is broken: one reply to each request, only whole and right bytes at a
// get's places, descriptors closed, and no leak at the end.
//
// So that random bytes get far, requests are completed: an all-zero namespace becomes the open one,
// and a release of a lease below 16 means one of the leases granted so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/local/protocol.h"

namespace kvkeep {

enum class ScriptOp : uint8_t {
  kMessage = 0,  // kind u8, descriptors u8, cut u16, repeat u8, size u16, body
  kPacket = 1,   // descriptors u8, size u16: a packet as it is
  kRun = 2,      // count u8: tasks to run of the daemon's threads; 0: all
  kMemory = 3,   // how u8: cut or write the memory that puts are read from
  kTime = 4,     // a tenth of a second and more, with all due work
  kConnect = 5,  // how u8: a new connection, with Hello or without; revoke; drain
  kGpu = 6,      // how u8: copies wait or not; the oldest that waits ends, well or badly
  kParts = 7,    // how u8, value u16: of the last put in parts, see ScriptParts
};
inline constexpr uint8_t kScriptOps = 8;

// `how` of kParts: the value stored in the word of the filled bytes, and the message to the daemon.
// One of each.
enum ScriptParts : uint8_t {
  kPartsWord = 1,    // `value`
  kPartsAbove = 2,   // far above any payload
  kPartsLess = 3,    // its former value minus `value`
  kPartsTold = 4,    // kPutFilled
  kPartsTick = 8,    // a tick
  kPartsGrace = 12,  // two ticks with the time of grace between them
};

// Low three bits of a `descriptors` byte; the others: how many.
enum class ScriptFd : uint8_t { kNone, kMemfd, kShortMemfd, kSealedMemfd, kPipe, kSocket, kNull };
inline constexpr uint8_t kScriptFds = 7;
constexpr uint8_t ScriptFds(ScriptFd kind, uint8_t count = 1) {
  return static_cast<uint8_t>(static_cast<uint8_t>(kind) | count << 3);
}

struct ScriptResult {
  uint64_t requests = 0, replies = 0, errors = 0, broken = 0;
  uint64_t stored = 0;       // chunks
  uint64_t in_parts = 0;     // chunks put in parts
  uint64_t stalled = 0;      // puts in parts that stood still
  uint64_t checked = 0;      // chunks read in place and found right
  uint64_t copied = 0;       // chunks, to GPU memory
  uint64_t descriptors = 0;  // passed
};
ScriptResult RunScript(std::span<const uint8_t> script);

// Writes scripts: the seeds.
class ScriptWriter {
 public:
  ScriptWriter& Message(local::Kind kind, std::span<const std::byte> body, uint8_t descriptors = 0,
                        uint16_t cut = 0, uint8_t repeat = 0);
  ScriptWriter& Packet(std::span<const std::byte> bytes, uint8_t descriptors = 0);
  ScriptWriter& Step(ScriptOp op, uint8_t argument);
  ScriptWriter& Parts(int how, uint16_t value = 0);

  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// Scripts made of the unit tests' messages: every kind of request, and the known ways to be wrong.
std::vector<std::vector<uint8_t>> SeedScripts();

}  // namespace kvkeep
