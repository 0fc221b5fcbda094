// Puts in parts: when bytes are copied, and the end of a put that is not filled.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "proto/local/message.h"
#include "tests/server/local/peer_tester.h"
#include "tiers/base/checksum.h"

namespace kvkeep {
namespace {

using local::Kind;
using std::chrono::milliseconds;

constexpr uint32_t kChunkBytes = 3 * kMiB + 777;
constexpr uint64_t kFilledAt = 8 * kMiB - 8;

// A client with a chunk of kChunkBytes that it writes little by little.
struct Parts {
  explicit Parts(const WorldOptions& options = PeerWorld())
      : t(options, [](LocalLimits* limits) { limits->grace = milliseconds(100); }) {
    t.Open();
    staging = t.Stage(8 * kMiB);
    SetWord(0);
  }
  void SetWord(uint64_t value) { std::memcpy(staging.data() + kFilledAt, &value, sizeof(value)); }
  uint64_t Begin(uint32_t flags = 0, uint64_t checksum = 0) {
    return t.Tell(Kind::kPutInParts, t.PartsBody({{.name = 1,
                                                   .bytes = kChunkBytes,
                                                   .runs = 5,
                                                   .flags = flags,
                                                   .checksum = checksum,
                                                   .tail = "tail"}},
                                                 kFilledAt));
  }
  // Writes up to `bytes` of it, and reports that.
  void FillTo(uint64_t bytes) {
    std::copy_n(payload.begin(), bytes, staging.begin());
    SetWord(bytes);
    CHECK(t.peer->OnPutFilled());
    t.RunAll();
  }
  void Tick(int ms) {
    now += milliseconds(ms);
    t.peer->OnTick(now);
    t.RunAll();
  }
  bool Stored() {
    const TestFound found = t.Get({1});
    return found.places.size() == 1 && t.Payload(found.places.at(0)) == payload &&
           t.Tail(found.places.at(0)) == "tail";
  }
  bool NothingIsLeft() {
    return t.store().snapshot().g2.reserved_bytes == 0 && t.store().snapshot().g2.chunks == 0 &&
           t.counters.puts_copying == 0;
  }

  PeerTester t;
  std::span<std::byte> staging;
  const std::vector<std::byte> payload = MakePayload(1, 1, kChunkBytes);
  MonotonicTime now{0};
};

}  // namespace

TEST_CASE("what is there of a put in parts is copied while the rest is written") {
  Parts p;
  const uint64_t checksum = Xxh3(p.payload);
  const uint64_t id = p.Begin(local::kPutHasChecksum, checksum);
  p.t.RunAll();
  // The daemon does not read bytes again that it has copied already.
  for (const uint64_t bytes : {kMiB / 2, kMiB, 2 * kMiB + 100}) {
    p.FillTo(bytes);
    const auto copied = static_cast<ptrdiff_t>(bytes / kMiB * kMiB);
    std::fill(p.staging.begin(), p.staging.begin() + copied, std::byte{0});
    CHECK_FALSE(p.t.HasReply(id));
  }
  std::copy_n(p.payload.begin() + 2 * kMiB, kChunkBytes - 2 * kMiB, p.staging.begin() + 2 * kMiB);
  p.SetWord(kChunkBytes);
  p.t.peer->OnPutFilled();
  p.t.RunAll();
  CHECK(ReadAnswers(p.t.TakeReply(id)) == "stored");
  CHECK(p.Stored());
  CHECK(p.t.counters.put_bytes == kChunkBytes);
}

TEST_CASE("nobody has to say that a put in parts is filled: a look finds it") {
  Parts p;
  SECTION("when it begins") { p.FillTo(kChunkBytes); }
  const uint64_t id = p.Begin();
  p.t.RunAll();
  if (!p.t.HasReply(id)) {
    std::copy_n(p.payload.begin(), kChunkBytes, p.staging.begin());
    p.SetWord(kChunkBytes);
    p.Tick(1);
  }
  CHECK(ReadAnswers(p.t.TakeReply(id)) == "stored");
  CHECK(p.Stored());
}

TEST_CASE("a put in parts that does not move for the time of grace is rejected, and only that") {
  Parts p;
  const uint64_t id = p.Begin();
  p.FillTo(kMiB);
  p.Tick(60);
  p.Tick(60);
  p.FillTo(2 * kMiB);  // slow, but it does not stand still
  p.Tick(60);
  for (int i = 0; i < 2; ++i) {  // but some bytes are no piece
    CHECK_FALSE(p.t.HasReply(id));
    p.FillTo(2 * kMiB + 1000 * static_cast<uint64_t>(i + 1));
    p.Tick(60);
  }
  CHECK(ReadAnswers(p.t.TakeReply(id)) ==
        "rejected 7: a put in parts: piece 2 did not come for 100 ms");
  CHECK(p.NothingIsLeft());
  CHECK(p.t.counters.stalled_puts == 1);
  p.Tick(500);
  CHECK(p.t.counters.stalled_puts == 1);
  p.FillTo(kChunkBytes);  // too late, without effect
  CHECK(p.NothingIsLeft());
  p.SetWord(kChunkBytes);
  const uint64_t again = p.Begin();
  p.t.RunAll();
  CHECK(ReadAnswers(p.t.TakeReply(again)) == "stored");
}

TEST_CASE("a word that shrinks or is above the payload ends the put in parts") {
  Parts p;
  const uint64_t id = p.Begin();
  SECTION("shrinks") {
    p.FillTo(2 * kMiB);
    p.FillTo(kMiB);
    CHECK(ReadAnswers(p.t.TakeReply(id)) ==
          "rejected 7: a put in parts: 1048576 bytes after 2097152, of 3146505");
  }
  SECTION("above") {
    p.SetWord(UINT64_MAX);
    p.t.peer->OnPutFilled();
    p.t.RunAll();
    CHECK(ReadAnswers(p.t.TakeReply(id)) ==
          "rejected 7: a put in parts: 18446744073709551615 bytes after 0, of 3146505");
  }
  CHECK(p.NothingIsLeft());
}

TEST_CASE("a chunk that is not wanted is answered before it is filled") {
  Parts p;
  p.FillTo(kChunkBytes);
  const uint64_t first = p.Begin();
  p.t.RunAll();
  CHECK(ReadAnswers(p.t.TakeReply(first)) == "stored");
  p.SetWord(0);
  const uint64_t again = p.Begin();
  p.t.RunAll();
  CHECK(ReadAnswers(p.t.TakeReply(again)) == "present");
  p.FillTo(kMiB);  // its client had not heard yet
  p.Tick(1000);
  CHECK(p.t.counters.stalled_puts == 0);
  CHECK(p.Stored());
}

TEST_CASE("a put in parts ends with its session, at whatever point") {
  Parts p;
  const uint64_t id = p.Begin();
  SECTION("before anything is there") {}
  SECTION("half") { p.FillTo(2 * kMiB); }
  SECTION("revoked") {
    p.FillTo(kMiB);
    p.t.peer->Revoke("stopped");
    p.t.RunAll();
    CHECK(absl::IsFailedPrecondition(p.t.TakeReply(id).status));
    CHECK(p.t.peer->OnPutFilled());
  }
  p.t.peer->End();
  p.t.RunAll();
  CHECK(p.NothingIsLeft());
}

TEST_CASE("a put in parts that waits for space is filled meanwhile") {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = 4 * kMiB;
  Parts p(options);
  const uint64_t first = p.t.Tell(Kind::kPut, p.t.PutBody({{.name = 2, .bytes = 2 * kMiB}}));
  const uint64_t id = p.Begin();
  // The word is whole before there is a place to copy to.
  std::copy_n(p.payload.begin(), kChunkBytes, p.staging.begin());
  p.SetWord(kChunkBytes);
  CHECK(p.t.peer->OnPutFilled());
  p.t.RunAll();
  CHECK(ReadAnswers(p.t.TakeReply(first)) == "stored");
  CHECK(ReadAnswers(p.t.TakeReply(id)) == "stored");
  CHECK(p.Stored());
}

TEST_CASE("a put in parts that is wrong anywhere does nothing and names the field") {
  Parts p;
  const auto ask = [&](const std::vector<TestChunk>& chunks, uint64_t word) {
    const SentMessage reply = p.t.Ask(Kind::kPutInParts, p.t.PartsBody(chunks, word));
    CHECK(absl::IsInvalidArgument(reply.status));
    return std::string(reply.status.message());
  };
  const TestChunk one{.name = 1, .bytes = 5000};
  CHECK(ask({one, one}, 0) == "chunks is 2, in parts it is 1");
  CHECK(ask({one}, 4) == "filled_offset is 4, no word of the 8388608 bytes of staging memory");
  CHECK(absl::StartsWith(ask({one}, 8 * kMiB), "filled_offset is 8388608"));
  CHECK(absl::StartsWith(ask({one}, UINT64_MAX - 7), "filled_offset is 18446744073709551608"));
  CHECK(absl::StrContains(ask({{.name = 1, .offset = 8 * kMiB, .bytes = 5000}}, 0), "runs[0]"));
  CHECK(p.NothingIsLeft());
}

TEST_CASE("a session of version 4 knows no puts in parts") {
  PeerTester t;
  t.Connect();
  REQUIRE(t.Ask(Kind::kHello, HelloBody("old", 4)).status.ok());
  CHECK(absl::IsUnimplemented(t.Ask(Kind::kPutInParts, t.PartsBody({{.bytes = 1}}, 0)).status));
  CHECK_FALSE(t.peer->OnPutFilled());
}

}  // namespace kvkeep
