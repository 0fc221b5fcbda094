// Actions of clients of the bulk door, as bytes: the input of the fuzz target `bulk`.
//
// A script is a row of steps, each an opcode and its arguments; any bytes are a script. Two clients
// speak by sockets to BulkConnections over a store in memory (bulk_target.cc). Every byte that the
// daemon writes is judged (bulk_oracle.h).
//
// So that random bytes get far, messages are completed: an empty session token or namespace becomes
// the open one, a lease below 16 one of those granted. A Put frame gets the payload that its
// message announces, made from its key.
#pragma once

#include <cstdint>
#include <vector>

namespace kvkeep {

enum class BulkOp : uint8_t {
  kFrame = 0,    // kind u8 (as FrameKind; 1: Hello), how u8 (BulkHow), size u16, message
  kAgain = 1,    // count u8: the last frame as often
  kBytes = 2,    // size u16: bytes as they are
  kTurn = 3,     // count u8: turns of the daemon's loop and of the store's threads
  kRead = 4,     // count u8: the client reads as many KiB; 0: all that is there
  kTime = 5,     // as much as lets a call stall, with all due work
  kClient = 6,   // how u8 (BulkClientStep)
  kSession = 7,  // how u8: 7: the store drains; else the session ends and another one begins
  kStore = 8,    // how u8: by gRPC, so to speak: a lookup with a lease, a delete, a clear
  kCut = 9,      // bytes that one read, and one write, of a connection moves at most, u8 each
};
inline constexpr uint8_t kBulkOps = 10;

// What is wrong with a frame. Any of them.
enum BulkHow : uint8_t {
  kHowWrongSum = 1,     // of a Put: a checksum
  kHowSpoilt = 2,       // of a Put: the payload, after its checksums were made
  kHowCut = 4,          // of a Put: half of its payload comes
  kHowLies = 8,         // payload_bytes is one more
  kHowShort = 16,       // message_bytes is one less
  kHowLong = 32,        // the message has an unknown field of 8 KiB; with kHowOther of 300 KiB
  kHowOther = 64,       // of a Put: another payload for the same key
  kHowIncomplete = 128  // the message is not completed
};

enum class BulkClientStep : uint8_t {
  kLeave = 0,        // and connect again, with Hello
  kLeaveSilent = 1,  // the same without
  kEndWriting = 2,
  kEndSoon = 3,  // the daemon does
  kOther = 4,    // the other client has its turn
};
inline constexpr uint8_t kBulkClientSteps = 5;

std::vector<std::vector<uint8_t>> BulkSeeds();

}  // namespace kvkeep
