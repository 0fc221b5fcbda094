// Scripts for the bulk door: every kind of frame, and the known ways to be wrong.
#include <algorithm>
#include <string>

#include "kvkeep/v1/bulk.pb.h"
#include "kvkeep/v1/kvkeep.pb.h"
#include "proto/bulk/frame.h"
#include "tests/fuzz/bulk_script.h"
#include "tiers/base/key.h"

namespace kvkeep {
namespace {

using bulk::FrameKind;

// Writes a script.
class BulkScript {
 public:
  BulkScript& Do(BulkOp op, uint8_t argument) {
    bytes_.push_back(static_cast<uint8_t>(op));
    bytes_.push_back(argument);
    return *this;
  }
  BulkScript& Do(BulkClientStep step) { return Do(BulkOp::kClient, static_cast<uint8_t>(step)); }
  BulkScript& Pass() {
    bytes_.push_back(static_cast<uint8_t>(BulkOp::kTime));
    return *this;
  }
  BulkScript& Cut(uint8_t read, uint8_t write) {
    Do(BulkOp::kCut, read);
    bytes_.push_back(write);
    return *this;
  }
  BulkScript& Bytes(const std::string& bytes) {
    bytes_.push_back(static_cast<uint8_t>(BulkOp::kBytes));
    return Text(bytes);
  }
  BulkScript& Frame(FrameKind kind, const std::string& message, int how = 0) {
    Do(BulkOp::kFrame,
       static_cast<uint8_t>(kind == FrameKind::kHello ? 1 : static_cast<int>(kind)));
    bytes_.push_back(static_cast<uint8_t>(how));
    return Text(message);
  }
  BulkScript& Put(const v1::PutFrame& frame, int how = 0) {
    return Frame(FrameKind::kPut, frame.SerializeAsString(), how);
  }
  BulkScript& PutDone() { return Frame(FrameKind::kPutDone, ""); }
  BulkScript& Get(const v1::GetRequest& request, int how = 0) {
    return Frame(FrameKind::kGet, request.SerializeAsString(), how);
  }
  BulkScript& Get(const std::string& names) {
    v1::GetRequest request;
    for (const char name : names) request.mutable_keys()->append(ChunkKey::kSize, name);
    request.add_parts(0);
    return Get(request);
  }
  // The daemon does what it can, and the client reads all.
  BulkScript& Go(uint8_t turns = 8) { return Do(BulkOp::kTurn, turns).Do(BulkOp::kRead, 0); }

  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  BulkScript& Text(const std::string& text) {
    bytes_.push_back(static_cast<uint8_t>(text.size()));
    bytes_.push_back(static_cast<uint8_t>(text.size() >> 8));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    return *this;
  }

  std::vector<uint8_t> bytes_;
};

v1::PutFrame ChunkOf(char name, uint64_t bytes, bool first = false) {
  v1::PutFrame frame;
  if (first) frame.mutable_stream();
  frame.mutable_chunk()->set_key(std::string(ChunkKey::kSize, name));
  frame.mutable_chunk()->set_payload_bytes(bytes);
  return frame;
}

constexpr uint64_t kPieces = 1'300'000;  // two of them

std::vector<uint8_t> BulkPutsAndGets() {
  v1::PutFrame second = ChunkOf('b', 5000);
  second.mutable_chunk()->set_durable(true);
  second.mutable_chunk()->set_metadata("tail");
  second.mutable_chunk()->set_part(1);
  v1::GetRequest leased;
  leased.set_keys(std::string(ChunkKey::kSize, 'a') + std::string(ChunkKey::kSize, 'b'));
  leased.set_lease_id(1);
  leased.add_parts(0);
  v1::GetRequest all = leased;
  all.clear_lease_id();
  all.clear_parts();
  all.set_metadata(true);
  return BulkScript()
      .Put(ChunkOf('a', 9000, true))
      .Put(second)
      .Put(ChunkOf('c', 1))
      .PutDone()
      .Go()
      .Pass()
      .Get(all)
      .Go()
      .Do(BulkOp::kStore, 2)
      .Get(leased)
      .Go()
      .Do(BulkOp::kStore, 1)
      .Get("abc")
      .Put(ChunkOf('a', 9000, true), kHowOther)
      .PutDone()
      .Get("a")
      .Do(BulkOp::kStore, 0)
      .Go()
      .bytes();
}

// Chunks of two pieces in small steps, for a client that reads slowly, and then not at all.
std::vector<uint8_t> BulkPieces(uint8_t read, uint8_t write) {
  BulkScript script;
  script.Put(ChunkOf('a', kPieces, true)).PutDone().Go(60);
  v1::GetRequest range;
  range.set_keys(std::string(ChunkKey::kSize, 'a'));
  range.set_first_piece(1);
  range.set_pieces(1);
  return script.Get("a")
      .Cut(read, write)
      .Do(BulkOp::kTurn, 9)
      .Do(BulkOp::kRead, 30)
      .Do(BulkOp::kTurn, 9)
      .Do(BulkOp::kRead, 255)
      .Cut(0, 0)
      .Go(60)
      .Get(range)
      .Go(60)
      .Get("aaa")
      .Do(BulkOp::kTurn, 40)
      .Pass()
      .Pass()
      .bytes();
}

// More than G2 holds, so that chunks come from the device, while two clients wait for room to pin.
std::vector<uint8_t> BulkPromotions() {
  BulkScript script;
  for (char name = 'a'; name < 'e'; ++name) {
    script.Put(ChunkOf(name, kPieces, true)).PutDone().Go(60).Pass().Go();
  }
  return script.Get("abcd")
      .Do(BulkOp::kTurn, 30)
      .Do(BulkClientStep::kOther)
      .Get("dcba")
      .Go(30)
      .Do(BulkClientStep::kOther)
      .Go(30)
      .Do(BulkClientStep::kLeave)
      .Do(BulkClientStep::kOther)
      .Go(60)
      .bytes();
}

std::vector<uint8_t> BulkWrongPut(int how) {
  return BulkScript()
      .Put(ChunkOf('a', 9000, true))
      .Put(ChunkOf('b', 9000), how)
      .Put(ChunkOf('c', 9000))
      .PutDone()
      .Go()
      .Get("abc")
      .Go()
      .Do(BulkClientStep::kLeave)
      .Put(ChunkOf('b', kPieces, true), how)
      .Do(BulkOp::kTurn, 40)
      .Do(BulkClientStep::kEndWriting)
      .Go()
      .bytes();
}

// Results that nobody reads, and calls that were sent ahead when the daemon ends the connection.
std::vector<uint8_t> BulkFloods() {
  return BulkScript()
      .Put(ChunkOf('a', 100, true))
      .Put(ChunkOf('a', 100))
      .Do(BulkOp::kAgain, 255)
      .Do(BulkOp::kAgain, 255)
      .Do(BulkOp::kTurn, 255)
      .PutDone()
      .Go(100)
      .Go(100)
      .Get("z")
      .Do(BulkOp::kAgain, 250)
      .Do(BulkOp::kAgain, 250)
      .Do(BulkOp::kAgain, 250)
      .Do(BulkOp::kTurn, 250)
      .Do(BulkClientStep::kEndSoon)
      .Go(50)
      .bytes();
}

// Messages for which a connection takes a share of the door's memory, of both clients.
std::vector<uint8_t> BulkLongMessages() {
  v1::GetRequest request;
  request.set_keys(std::string(ChunkKey::kSize, 'a'));
  BulkScript script;
  script.Put(ChunkOf('a', 5000, true), kHowLong)
      .Put(ChunkOf('b', 5000), kHowLong)
      .Do(BulkOp::kTurn, 3)
      .Do(BulkClientStep::kOther)
      .Get(request, kHowLong | kHowOther)
      .Do(BulkOp::kTurn, 2)
      .Do(BulkClientStep::kLeave)
      .Get(request, kHowLong | kHowShort)
      .Go()
      .Do(BulkClientStep::kOther)
      .PutDone()
      .Go()
      .Put(ChunkOf('c', 10, true), kHowLong | kHowOther);  // longer than a Put may be
  return script.Go().bytes();
}

std::vector<uint8_t> BulkMistakes() {
  v1::PutFrame abort = ChunkOf('a', 10, true), inside = ChunkOf('a', 10, true);
  abort.set_abort(true);
  inside.set_payload("0123456789");
  v1::PutFrame huge = ChunkOf('a', uint64_t{1} << 40, true), strange = ChunkOf('a', 10, true);
  strange.mutable_stream()->set_session_token(std::string(16, 's'));
  v1::BulkHello later;
  later.set_min_version(2);
  later.set_max_version(9);
  v1::GetRequest strangers;
  strangers.set_session_token(std::string(16, 's'));
  BulkScript script;
  for (const v1::PutFrame& frame : {abort, inside, huge, strange, ChunkOf('a', 0, true)}) {
    script.Put(frame).Go().Do(BulkClientStep::kLeave);
  }
  script.Put(ChunkOf('a', 10, true)).Put(ChunkOf('b', 10, true)).Go().Do(BulkClientStep::kLeave);
  script.Put(ChunkOf('a', 10, true)).Get("a").Go().Do(BulkClientStep::kLeave);
  for (const FrameKind kind :
       {FrameKind::kHello, FrameKind::kPutDone, FrameKind::kEnd, static_cast<FrameKind>(99)}) {
    script.Frame(kind, "").Go().Do(BulkClientStep::kLeave);
  }
  script.Get(strangers).Frame(FrameKind::kGet, "\xff\xff").Get("a").Go();
  script.Do(BulkClientStep::kLeaveSilent).Get("a").Go();
  script.Do(BulkClientStep::kLeaveSilent).Frame(FrameKind::kHello, later.SerializeAsString()).Go();
  return script.bytes();
}

std::vector<uint8_t> BulkBrokenBytes() {
  BulkScript script;
  script.Do(BulkClientStep::kLeaveSilent).Bytes("GET / HTTP/1.1\r\nHost: x\r\n\r\n").Go();
  for (const std::string& head :
       {bulk::EncodeHead(FrameKind::kGet, bulk::kMaxMessageBytes, 0),
        bulk::EncodeHead(FrameKind::kGet, UINT32_MAX, 0), bulk::EncodeHead(FrameKind::kGet, 0, 1),
        bulk::EncodeHead(FrameKind::kPut, 0, UINT64_MAX),
        bulk::EncodeHead(FrameKind::kPut, 10, 100).substr(0, 9)}) {
    script.Do(BulkClientStep::kLeave).Bytes(head).Go().Pass().Go();
  }
  return script.Do(BulkClientStep::kLeaveSilent).Pass().Pass().Pass().Bytes("x").Go().bytes();
}

// The session ends, and the store drains, amid puts and gets.
std::vector<uint8_t> BulkSessions() {
  BulkScript script;
  for (const uint8_t how : {0, 7}) {
    script.Put(ChunkOf('a', 9000, true))
        .Put(ChunkOf('b', kPieces), kHowCut)
        .Do(BulkOp::kTurn, 5)
        .Do(BulkClientStep::kOther)
        .Get("aaaa")
        .Do(BulkOp::kTurn, 1)
        .Do(BulkOp::kSession, how)
        .Go()
        .Do(BulkClientStep::kOther)
        .Bytes(std::string(700, 'x'))
        .Go()
        .Do(BulkClientStep::kLeave);
  }
  return script.bytes();
}

}  // namespace

std::vector<std::vector<uint8_t>> BulkSeeds() {
  std::vector<std::vector<uint8_t>> seeds = {
      BulkPutsAndGets(), BulkPieces(0, 0),   BulkPieces(1, 7), BulkPieces(200, 250),
      BulkPromotions(),  BulkFloods(),       BulkMistakes(),   BulkBrokenBytes(),
      BulkSessions(),    BulkLongMessages(),
  };
  for (const int how : {kHowWrongSum, kHowSpoilt, kHowCut, kHowLies, kHowShort}) {
    seeds.push_back(BulkWrongPut(how));
  }
  for (const uint8_t most : {1, 3, 100}) {
    std::vector<uint8_t> cut = BulkScript().Cut(most, most).bytes();
    const std::vector<uint8_t> puts = BulkPutsAndGets();
    cut.insert(cut.end(), puts.begin(), puts.end());
    seeds.push_back(std::move(cut));
  }
  return seeds;
}

}  // namespace kvkeep
