// Events that end a put in parts which has no space yet.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "proto/local/message.h"
#include "tests/server/local/peer_tester.h"

namespace kvkeep {
namespace {

using local::Kind;
using std::chrono::milliseconds;

constexpr uint32_t kEach = 2 * kMiB + 333;
constexpr uint64_t kWaitWordsAt = 8 * kMiB - 16;

WorldOptions RoomForOne() {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = 3 * kMiB;
  return options;
}

// Two puts in parts, of which the first holds the space; each with its word.
struct TwoInParts {
  TwoInParts() : t(RoomForOne(), [](LocalLimits* limits) { limits->grace = milliseconds(100); }) {
    t.Open();
    staging = t.Stage(8 * kMiB);
    for (const uint64_t which : {0, 1}) {
      SetWord(which, 0);
      ids[which] = t.Tell(Kind::kPutInParts, t.PartsBody({{.name = 1 + which, .bytes = kEach}},
                                                         kWaitWordsAt + 8 * which));
    }
    SetWord(0, 1000);
    Tell();
  }
  void SetWord(uint64_t which, uint64_t value) {
    std::memcpy(staging.data() + kWaitWordsAt + 8 * which, &value, sizeof(value));
  }
  void Tell() {
    CHECK(t.peer->OnPutFilled());
    t.RunAll();
  }
  // Passes this much time, in which the first one moves and the second does not.
  void Tick(int ms) {
    if (++ticks == 2) SetWord(0, kMiB);  // a piece
    now += milliseconds(ms);
    t.peer->OnTick(now);
    t.RunAll();
  }
  bool NothingIsLeft() {
    t.RunAll();
    return t.store().snapshot().g2.reserved_bytes == 0 && t.counters.puts_copying == 0;
  }

  PeerTester t;
  std::span<std::byte> staging;
  uint64_t ids[2] = {0, 0};
  int ticks = 0;
  MonotonicTime now{0};
};

}  // namespace

TEST_CASE("a put in parts that stands still while it waits for space is rejected, when it has it") {
  TwoInParts p;
  for (int i = 0; i < 3; ++i) p.Tick(60);
  CHECK(p.t.counters.stalled_puts == 1);
  CHECK_FALSE(p.t.HasReply(p.ids[0]));
  SECTION("still not whole") {}
  SECTION("whole, too late") { p.SetWord(1, kEach); }
  p.SetWord(0, kEach);
  p.Tell();
  CHECK(ReadAnswers(p.t.TakeReply(p.ids[0])) == "stored");
  CHECK(absl::StartsWith(ReadAnswers(p.t.TakeReply(p.ids[1])),
                         "rejected 7: a put in parts: piece 0 "));
  CHECK(p.t.store().snapshot().g2.chunks == 1);
  CHECK(p.t.counters.stalled_puts == 1);
  CHECK(p.NothingIsLeft());
}

TEST_CASE("a wrong word of a put in parts that waits for space rejects it, and only it") {
  TwoInParts p;
  p.SetWord(1, kEach + 1);
  p.Tell();
  CHECK_FALSE(p.t.HasReply(p.ids[0]));
  p.SetWord(1, kEach);  // it was wrong once
  p.SetWord(0, kEach);
  p.Tell();
  CHECK(ReadAnswers(p.t.TakeReply(p.ids[0])) == "stored");
  CHECK(absl::StartsWith(ReadAnswers(p.t.TakeReply(p.ids[1])), "rejected 7: a put in parts: "));
  CHECK(p.NothingIsLeft());
}

TEST_CASE("a put in parts that waits for space ends with its session") {
  TwoInParts p;
  SECTION("nothing of it is there") {}
  SECTION("all of it is there") {
    p.SetWord(1, kEach);
    p.Tell();
  }
  SECTION("given up") {
    for (int i = 0; i < 3; ++i) p.Tick(60);
    CHECK(p.t.counters.stalled_puts == 1);
  }
  SECTION("revoked") {
    p.t.peer->Revoke("stopped");
    p.t.RunAll();
    for (const uint64_t id : p.ids) {
      CHECK(absl::IsFailedPrecondition(p.t.TakeReply(id).status));
    }
  }
  p.t.peer->End();
  CHECK(p.NothingIsLeft());
  CHECK(p.t.store().snapshot().g2.chunks == 0);
}

}  // namespace kvkeep
