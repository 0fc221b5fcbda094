// Lookup, acquire and get on the local path.
#include "client/local/test_point.h"
#include "tests/client/local/fixture.h"

namespace kvkeep::client {

TEST_CASE("acquired chunks are read in place and given back") {
  LocalFixture f;
  const std::vector<std::byte> a = Bytes(3 * kMiB + 5, 1), b = Bytes(10, 2);
  f.daemon.AddChunk("m", Key("a"), 0, a, "about a");
  f.daemon.AddChunk("m", Key("b"), 0, b);
  {
    auto got = f.Acquire({Key("a"), Key("b"), Key("c")});
    REQUIRE(got.ok());
    CHECK(got->leading_keys == 2);
    CHECK(got->leased_keys == 2);
    REQUIRE(got->chunks.size() == 2);
    const std::span<const std::byte> payload = got->chunks[0].contiguous();
    CHECK(std::equal(payload.begin(), payload.end(), a.begin(), a.end()));
    REQUIRE(got->chunks[0].metadata.size() == 1);
    CHECK(std::string(reinterpret_cast<const char*>(got->chunks[0].metadata[0].data()), 7) ==
          "about a");
    CHECK(got->pieces_ready(0) == 4);
    CHECK(got->WaitAll(Deadline(0)).ok());
    CHECK(got->Verify(0));
    CHECK(got->Verify(1));
    CHECK(got->valid());
    CHECK(got->lease.alive());
    f.daemon.Corrupt(Key("b"));
    CHECK_FALSE(got->Verify(1));
  }
  CHECK(Eventually([&] { return f.daemon.released() == std::vector<uint64_t>{1}; }));
}

TEST_CASE("a chunk in several runs is copied and verified as one") {
  LocalFixture f;
  f.daemon.script.split_images = true;
  const std::vector<std::byte> payload = Bytes(2 * kMiB + 77, 3);
  f.daemon.AddChunk("m", Key("a"), 0, payload, std::string(9000, 't'));
  auto got = f.Acquire({Key("a")});
  REQUIRE(got.ok());
  CHECK(got->chunks[0].runs.size() == 2);
  CHECK(got->chunks[0].contiguous().empty());
  CHECK(got->Verify(0));
  CHECK(f.GetOne(Key("a"), {.metadata = true}) == GetStatus::kHit);
  CHECK(f.back == payload);
  CHECK(f.outcome.metadata == std::string(9000, 't'));
}

TEST_CASE("a get fills several runs of each chunk, and skips what nobody wants") {
  LocalFixture f;
  f.daemon.script.split_images = true;
  const std::vector<std::byte> payload = Bytes(2 * kMiB + 77, 3);
  f.daemon.AddChunk("m", Key("a"), 0, payload);
  f.daemon.AddChunk("m", Key("b"), 0, payload);
  std::vector<std::byte> head(1000), tail(kMiB), whole(2 * kMiB + 100);
  const size_t skipped = payload.size() - head.size() - tail.size();
  const std::vector<std::span<std::byte>> to = {
      head, std::span(static_cast<std::byte*>(nullptr), skipped), tail, whole};
  const std::vector<uint32_t> counts = {3, 1};
  const std::vector<ChunkKey> keys = {Key("a"), Key("b")};
  const bool verify = GENERATE(true, false);
  GetOptions options{.verify = verify};
  options.destinations = to;
  options.destination_runs = counts;
  auto got = f.Get(keys, std::move(options));
  REQUIRE(got.ok());
  for (const GetOutcome& outcome : got->chunks) {
    CHECK(outcome.status == GetStatus::kHit);
    CHECK(outcome.bytes == payload.size());
  }
  CHECK(std::equal(head.begin(), head.end(), payload.begin()));
  CHECK(std::equal(tail.begin(), tail.end(), payload.end() - kMiB));
  CHECK(std::equal(payload.begin(), payload.end(), whole.begin()));
  // One buffer is a byte too small, the other one is not.
  tail.resize(kMiB - 1);
  const std::vector<std::span<std::byte>> short_by_one = {head, to[1], tail, whole};
  GetOptions again;
  again.destinations = short_by_one;
  again.destination_runs = counts;
  got = f.Get(keys, std::move(again));
  REQUIRE(got.ok());
  CHECK(got->chunks[0].status == GetStatus::kTooSmall);
  CHECK(got->chunks[1].status == GetStatus::kHit);
}

TEST_CASE("a get delivers hits, misses, ranges and what is too small, as the gRPC one") {
  LocalFixture f;
  const std::vector<std::byte> payload = Bytes(3 * kMiB + 100, 1);
  f.daemon.AddChunk("m", Key("a"), 0, payload);
  CHECK(f.GetOne(Key("a")) == GetStatus::kHit);
  CHECK(f.back == payload);
  CHECK(f.outcome.bytes == payload.size());
  CHECK(f.GetOne(Key("none")) == GetStatus::kMiss);
  CHECK(f.GetOne(Key("a"), {.first_piece = 1, .pieces = 1}) == GetStatus::kHit);
  CHECK(
      std::equal(f.back.begin(), f.back.end(), payload.begin() + kMiB, payload.begin() + 2 * kMiB));
  CHECK(f.GetOne(Key("a"), {.first_piece = 3}) == GetStatus::kHit);
  CHECK(f.back.size() == 100);
  std::vector<std::byte> small(100);
  std::span<std::byte> span(small);
  auto got = f.Get({Key("a")}, {.destinations = absl::MakeSpan(&span, 1)});
  REQUIRE(got.ok());
  CHECK(got->chunks[0].status == GetStatus::kTooSmall);
  CHECK(got->chunks[0].payload_bytes == payload.size());
  CHECK(absl::IsInvalidArgument(f.Get({Key("a"), Key("b")}, {.destinations = {}}).status()));
}

TEST_CASE("bytes that do not match their checksums are never a hit") {
  LocalFixture f;
  f.daemon.AddChunk("m", Key("a"), 0, Bytes(100, 1));
  f.daemon.Corrupt(Key("a"));
  CHECK(f.GetOne(Key("a")) == GetStatus::kCorrupt);
  CHECK(f.transport->stats().corrupt_chunks == 1);
  CHECK(f.GetOne(Key("a"), {.verify = false}) == GetStatus::kHit);
}

TEST_CASE("a get under a lease asks nobody, and finds chunks that were deleted since") {
  LocalFixture f;
  const std::vector<std::byte> a = Bytes(1000, 1), b = Bytes(2000, 2);
  f.daemon.AddChunk("m", Key("a"), 0, a);
  f.daemon.AddChunk("m", Key("b"), 0, b);
  auto found = f.Lookup({Key("a"), Key("b")}, {.lease = LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  CHECK(found->leased_keys == 2);
  CHECK(found->promotion_us == 1234);  // the fake daemon always says this
  CHECK(found->in_g2(1));
  const uint64_t deleted = *f.Wait<absl::StatusOr<uint64_t>>(
      [&](auto done) { f.transport->Delete(f.ns, {Key("b")}, {}, Deadline(0), std::move(done)); });
  CHECK(deleted == 1);
  const int asked = f.daemon.requests(local::Kind::kGet);
  CHECK(f.GetOne(Key("b"), {.lease = &found->lease, .first_key = 1}) == GetStatus::kHit);
  CHECK(f.back == b);
  CHECK(f.daemon.requests(local::Kind::kGet) == asked);
  CHECK(f.GetOne(Key("b")) == GetStatus::kMiss);  // without the lease
  // Not the lease's keys; keys beyond them.
  CHECK(f.GetOne(Key("a"), {.lease = &found->lease, .first_key = 1}) == GetStatus::kUnfinished);
  CHECK(absl::IsInvalidArgument(f.last));
  CHECK(f.GetOne(Key("a"), {.lease = &found->lease, .first_key = 2}) == GetStatus::kUnfinished);
  CHECK(absl::IsInvalidArgument(f.last));
  REQUIRE(f.Release(std::move(found->lease)).ok());
  CHECK(f.GetOne(Key("a"), {.lease = &found->lease}) == GetStatus::kUnfinished);
  CHECK(absl::IsFailedPrecondition(f.last));
}

TEST_CASE("a key that is given back while its bytes are copied is a miss") {
  LocalFixture f;
  f.daemon.AddChunk("m", Key("a"), 0, Bytes(1000, 1));
  f.daemon.AddChunk("m", Key("b"), 0, Bytes(2000, 2));
  auto found = f.Lookup({Key("a"), Key("b")}, {.lease = LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  std::vector<std::byte> memory(4000);
  int asked = 0;
  const auto got =
      f.Get({Key("a"), Key("b")}, {.lease = &found->lease, .allocate = [&](size_t, size_t bytes) {
                                     if (++asked == 2) found->lease.Shrink(1);
                                     return std::span(memory).first(bytes);
                                   }});
  REQUIRE(got.ok());
  CHECK(asked == 2);
  CHECK(got->chunks[0].status == GetStatus::kHit);
  CHECK(got->chunks[1].status == GetStatus::kMiss);
}

TEST_CASE("a get of more than can be leased at once goes on with the rest") {
  LocalFixture f;
  f.daemon.script.max_leased_keys = 3;
  std::vector<ChunkKey> keys;
  std::vector<std::vector<std::byte>> back(10, std::vector<std::byte>(500));
  for (int i = 0; i < 10; ++i) {
    keys.push_back(Key(absl::StrCat("k", i)));
    if (i != 4) f.daemon.AddChunk("m", keys.back(), 0, Bytes(500, static_cast<uint64_t>(i)));
  }
  std::vector<std::span<std::byte>> to(back.begin(), back.end());
  auto got = f.Get(keys, {.destinations = absl::MakeSpan(to)});
  REQUIRE(got.ok());
  for (int i = 0; i < 10; ++i) {
    CHECK(got->chunks[i].status == (i == 4 ? GetStatus::kMiss : GetStatus::kHit));
    if (i != 4) CHECK(back[i] == Bytes(500, static_cast<uint64_t>(i)));
  }
  CHECK(Eventually([&] { return f.daemon.released().size() == 4; }));
  f.daemon.script.max_leased_keys = 0;
  CHECK(f.GetOne(keys[0]) == GetStatus::kBusy);
}

TEST_CASE("pieces become readable one by one, and a chunk that is lost on its way is a miss") {
  LocalFixture f;
  f.daemon.script.from_g3 = true;
  const std::vector<std::byte> payload = Bytes(3 * kMiB, 1);
  f.daemon.AddChunk("m", Key("a"), 0, payload);
  auto got = f.Acquire({Key("a")});  // word 1
  REQUIRE(got.ok());
  CHECK(got->pieces_ready(0) == 0);
  CHECK(absl::IsDeadlineExceeded(got->WaitPieces(0, 1, Deadline(20))));
  f.daemon.SetProgress(1, 2);
  CHECK(got->pieces_ready(0) == 2);
  CHECK(got->WaitPieces(0, 2, Deadline(0)).ok());
  std::thread later([&] {
    // Gives the wait below time to begin, which is not needed.
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    f.daemon.SetProgress(1, 3);
  });
  CHECK(got->WaitAll(Deadline(10'000)).ok());
  later.join();
  CHECK(got->Verify(0));

  std::thread arriving([&] {
    for (uint32_t pieces = 1; pieces <= 3; ++pieces) f.daemon.SetProgress(2, pieces);
  });
  CHECK(f.GetOne(Key("a")) == GetStatus::kHit);
  CHECK(f.back == payload);
  arriving.join();
  f.daemon.SetProgress(3, local::kProgressFailed | 1);
  CHECK(f.GetOne(Key("a")) == GetStatus::kMiss);
  f.daemon.SetProgress(4, 1);
  CHECK(f.GetOne(Key("a"), {.deadline = Deadline(50)}) == GetStatus::kUnfinished);
  CHECK(absl::IsDeadlineExceeded(f.last));
}

TEST_CASE("a chunk whose bytes do not come in time costs no other chunk of its get") {
  LocalFixture f;
  f.daemon.script.from_g3 = true;
  const std::vector<ChunkKey> keys = {Key("slow"), Key("a"), Key("b")};
  std::vector<std::vector<std::byte>> back(keys.size(), std::vector<std::byte>(500));
  for (size_t i = 0; i < keys.size(); ++i) f.daemon.AddChunk("m", keys[i], 0, Bytes(500, i));
  for (const bool leased : {false, true}) {
    INFO("under a lease of the caller's: " << leased);
    const uint32_t first_word = leased ? 4 : 1;
    f.daemon.SetProgress(first_word + 1, 1);
    std::optional<Lease> lease;
    if (leased) {
      auto found = f.Lookup(keys, {.lease = LeaseMode::kAllPresent});
      REQUIRE(found.ok());
      lease = std::move(found->lease);
    }
    std::vector<std::span<std::byte>> to(back.begin(), back.end());
    std::thread later([&] {  // next to the wait for the first
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      f.daemon.SetProgress(first_word + 2, 1);
    });
    const auto got = f.Get(keys, {.lease = leased ? &*lease : nullptr,
                                  .deadline = Deadline(5'000),
                                  .destinations = absl::MakeSpan(to)});
    later.join();
    REQUIRE(got.ok());
    CHECK(absl::IsDeadlineExceeded(got->error));
    CHECK(got->chunks[0].status == GetStatus::kUnfinished);
    for (const size_t i : {1, 2}) {
      CHECK(got->chunks[i].status == GetStatus::kHit);
      CHECK(back[i] == Bytes(500, i));
    }
  }
}

TEST_CASE("a get asks beyond the node for half of its deadline at most, and not under a lease") {
  LocalFixture f;
  f.daemon.AddChunk("m", Key("a"), 0, Bytes(10, 1));
  CHECK(f.GetOne(Key("a")) == GetStatus::kHit);
  CHECK(f.daemon.remote_wait_us == 1'000'000);
  CHECK(f.GetOne(Key("b"), {.remote_wait = std::chrono::milliseconds(3)}) == GetStatus::kMiss);
  CHECK(f.daemon.remote_wait_us == 3'000);
  CHECK(f.GetOne(Key("a"), {.deadline = Deadline(1'600)}) == GetStatus::kHit);
  CHECK(f.daemon.remote_wait_us > 0);
  CHECK(f.daemon.remote_wait_us <= 800'000);
  CHECK(f.GetOne(Key("a"), {.remote_wait = std::chrono::microseconds(0)}) == GetStatus::kHit);
  CHECK(f.daemon.remote_wait_us == 0);
  const auto found = f.Lookup({Key("a")}, {.lease = LeaseMode::kAllPresent});
  REQUIRE(found.ok());
  CHECK(f.GetOne(Key("a"), {.lease = &found->lease}) == GetStatus::kHit);
  CHECK(f.daemon.remote_wait_us == 0);
}

TEST_CASE("a daemon of before version 7 is not asked for what lies beyond the node") {
  LocalFixture f([](fakes::FakeLocalDaemon::Script* script) { script->version = 6; });
  f.daemon.AddChunk("m", Key("a"), 0, Bytes(10, 1));
  CHECK(f.GetOne(Key("a")) == GetStatus::kHit);
  CHECK(f.daemon.remote_wait_us == 0);
}

TEST_CASE("touch, prefetch and server info answer as over gRPC") {
  LocalFixture f;
  f.daemon.AddChunk("m", Key("a"), 0, Bytes(10, 1));
  CHECK(*f.Wait<absl::StatusOr<uint64_t>>([&](auto done) {
    f.transport->Touch(f.ns, {Key("a"), Key("b")}, {}, Deadline(0), std::move(done));
  }) == 1);
  CHECK(f.Wait<absl::StatusOr<PrefetchResult>>([&](auto done) {
           f.transport->Prefetch(f.ns, {Key("a")}, {}, Deadline(0), std::move(done));
         })->ready_chunks == 1);
  const auto info = f.Wait<absl::StatusOr<ServerInfo>>(
      [&](auto done) { f.transport->GetServerInfo(Deadline(0), std::move(done)); });
  REQUIRE(info.ok());
  CHECK(info->version == "fake");
  CHECK(info->state == "serving");
  CHECK(info->limits.max_keys_per_call == 10'000);
  CHECK(absl::IsInvalidArgument(f.Lookup({}).status()));
  CHECK(f.Lookup(std::vector<ChunkKey>(10'001)).ok());
  CHECK(f.daemon.requests(local::Kind::kLookup) == 2);
}

}  // namespace kvkeep::client
