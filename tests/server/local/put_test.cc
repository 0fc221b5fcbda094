#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>

#include "proto/local/message.h"
#include "tests/fakes/manual_clock.h"
#include "tests/server/local/peer_tester.h"
#include "tiers/base/checksum.h"
#include "tiers/base/page_bytes.h"

namespace kvkeep {
namespace {

using local::Kind;

uint64_t SumOf(std::span<const std::byte> bytes) { return Xxh3(bytes); }

}  // namespace

TEST_CASE("a put gathers the runs of a chunk in their order, over the bounds of pieces") {
  PeerTester t;
  t.Open();
  const uint32_t bytes = 2 * kMiB + 777;
  const auto payload = MakePayload(1, 1, bytes);
  auto staging = t.Stage(4 * kMiB);
  // Runs of odd sizes, laid out in staging back to front.
  std::vector<local::PutRun> runs;
  uint64_t from = 0, at = staging.size();
  for (uint32_t size = 1; from < bytes; size = size * 3 + 1) {
    const auto run = static_cast<uint32_t>(std::min<uint64_t>(size, bytes - from));
    at -= run;
    std::copy_n(payload.begin() + static_cast<ptrdiff_t>(from), run,
                staging.begin() + static_cast<ptrdiff_t>(at));
    runs.push_back({.bytes = run, .offset = at});
    from += run;
  }
  local::MessageWriter body(0, 0);
  body.Append(
      local::PutRequest{.ns = t.ns.bytes, .chunks = 1, .runs = static_cast<uint32_t>(runs.size())});
  body.Append(local::PutChunk{.key = MakeKey(1).bytes,
                              .checksum = SumOf(payload),
                              .payload_bytes = bytes,
                              .tail_bytes = 2,
                              .runs = static_cast<uint32_t>(runs.size()),
                              .flags = local::kPutHasChecksum});
  body.AppendAll(std::span<const local::PutRun>(runs));
  body.AppendText("ok");
  const SentMessage reply = t.Ask(Kind::kPut, body.Finish().subspan(sizeof(local::MessageHeader)));
  CHECK(ReadAnswers(reply) == "stored");
  const TestFound found = t.Get({1});
  CHECK(t.Payload(found.places.at(0)) == payload);
  CHECK(t.Tail(found.places.at(0)) == "ok");
  CHECK(t.counters.put_bytes == bytes);
}

TEST_CASE("the tasks of a put are posted near the space that they fill") {
  PeerTester t;
  t.world.arena().has_nodes = true;
  t.Open();
  t.Stage(3 * kMiB);
  std::vector<TestChunk> chunks;  // two fill the first segment but for a little
  for (uint64_t name = 0; name < 3; ++name) {
    chunks.push_back({.name = name, .bytes = 3 * kMiB, .flags = local::kPutNoG3});
  }
  CHECK(ReadAnswers(t.Ask(Kind::kPut, t.PutBody(chunks))) == "stored, stored, stored");
  CHECK(t.world.executor().near() == std::map<int, int>{{0, 6}, {1, 3}});  // a piece each
}

TEST_CASE("many chunks of one put are answered one by one") {
  PeerTester t;
  t.Open();
  auto staging = t.Stage(kMiB);
  std::vector<TestChunk> chunks;
  for (uint64_t name = 0; name < 100; ++name) {
    const auto payload = MakePayload(name, 1, 5000);
    std::copy(payload.begin(), payload.end(),
              staging.begin() + static_cast<ptrdiff_t>(name * 5000));
    chunks.push_back({.name = name,
                      .offset = name * 5000,
                      .bytes = 5000,
                      .runs = 2,
                      .tail = std::to_string(name)});
  }
  chunks[7].name = 6;  // a key twice: bytes under one key are the same by definition
  const std::string answers = ReadAnswers(t.Ask(Kind::kPut, t.PutBody(chunks)));
  size_t stored = 0;
  for (size_t at = 0; (at = answers.find("stored", at)) != std::string::npos; ++at) ++stored;
  CHECK(stored == 99);
  CHECK(absl::StrContains(answers,
                          "stored, stored, stored, stored, stored, stored, stored, "
                          "present, stored"));
  for (uint64_t name : {0, 5, 8, 99}) {
    const TestFound found = t.Get({name});
    CHECK(t.Payload(found.places.at(0)) == MakePayload(name, 1, 5000));
    CHECK(t.Tail(found.places.at(0)) == std::to_string(name));
  }
  // Again: everything is there, nothing is copied.
  const uint64_t copied = t.counters.put_bytes;
  const uint64_t again = t.Tell(Kind::kPut, t.PutBody(chunks));
  t.loop->RunAll();
  CHECK_FALSE(absl::StrContains(ReadAnswers(t.TakeReply(again)), "stored"));
  CHECK(t.counters.put_bytes == copied);
  CHECK(t.counters.put_discarded_bytes == 100 * 5000);
}

TEST_CASE("puts over the limit of reserved bytes go chunk after chunk, and in their order") {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = 3 * kMiB;
  PeerTester t(options);
  t.Open();
  auto staging = t.Stage(3 * kMiB);
  const auto payload = MakePayload(1, 1, 2 * kMiB);
  std::copy(payload.begin(), payload.end(), staging.begin());
  std::vector<TestChunk> large, mixed;
  for (uint64_t name = 1; name <= 4; ++name) large.push_back({.name = name, .bytes = 2 * kMiB});
  for (uint64_t name = 3; name <= 5; ++name) mixed.push_back({.name = name, .bytes = 2 * kMiB});
  const uint64_t first = t.Tell(Kind::kPut, t.PutBody(large));
  const uint64_t second = t.Tell(Kind::kPut, t.PutBody(mixed));
  const uint64_t third = t.Tell(Kind::kPut, t.PutBody({{.name = 6, .bytes = 100}}));
  CHECK(t.store().snapshot().g2.reserved_bytes < 3 * kMiB);
  t.RunAll();
  CHECK(ReadAnswers(t.TakeReply(first)) == "stored, stored, stored, stored");
  CHECK(ReadAnswers(t.TakeReply(second)) == "present, present, stored");
  CHECK(ReadAnswers(t.TakeReply(third)) == "stored");
  CHECK(t.store().snapshot().g2.reserved_bytes == 0);
  CHECK(t.counters.puts_copying == 0);
  for (uint64_t name : {1, 4, 5}) CHECK(t.Payload(t.Get({name}).places.at(0)) == payload);
  CHECK(t.store().snapshot().counters.puts_rejected == 0);  // waiting is no rejection
  // A chunk that never fits does not keep the next one from its turn.
  CHECK(absl::StartsWith(ReadAnswers(t.Ask(Kind::kPut, t.PutBody({{.name = 7, .bytes = 3 * kMiB},
                                                                  {.name = 8, .bytes = 100}}))),
                         "rejected"));
  CHECK(t.store().snapshot().counters.puts_rejected == 1);
}

TEST_CASE("puts that wait for space end with their session") {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = 3 * kMiB;
  PeerTester t(options);
  t.Open();
  t.Stage(2 * kMiB);
  const auto body = t.PutBody({{.name = 1, .bytes = 2 * kMiB}, {.name = 2, .bytes = 2 * kMiB}});
  const uint64_t first = t.Tell(Kind::kPut, body);
  const uint64_t second = t.Tell(Kind::kPut, t.PutBody({{.name = 3, .bytes = 2 * kMiB}}));
  t.peer->Revoke("stopped");
  t.RunAll();
  CHECK(absl::IsFailedPrecondition(t.TakeReply(first).status));
  CHECK(absl::IsFailedPrecondition(t.TakeReply(second).status));
  CHECK(t.store().snapshot().g2.chunks == 0);
  CHECK(t.store().snapshot().g2.reserved_bytes == 0);
  CHECK(t.counters.puts_copying == 0);
}

TEST_CASE("a wrong checksum is a rejected chunk, the others of the put are stored") {
  PeerTester t;
  t.Open();
  const auto payload = MakePayload(1, 1, 5000);
  auto staging = t.Stage(8192);
  std::copy(payload.begin(), payload.end(), staging.begin());
  const SentMessage reply =
      t.Ask(Kind::kPut,
            t.PutBody({{.name = 1, .bytes = 5000, .flags = local::kPutHasChecksum, .checksum = 1},
                       {.name = 2,
                        .bytes = 5000,
                        .flags = local::kPutHasChecksum,
                        .checksum = SumOf(payload)}}));
  const std::string answers = ReadAnswers(reply);
  CHECK(absl::StartsWith(
      answers, "rejected 4: checksum: 0000000000000001; the payload that came has "));
  CHECK(absl::EndsWith(answers, ", stored"));
  CHECK(t.Get({1, 2}).places.size() == 1);
  CHECK(t.store().snapshot().g2.reserved_bytes == 0);
}

TEST_CASE("what the store rejects is told per chunk, with its reason") {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = 16 * 1024;
  PeerTester t(options);
  t.Open();
  t.Stage(kMiB);
  CHECK(absl::StartsWith(ReadAnswers(t.Ask(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5000},
                                                                  {.name = 2, .bytes = 100'000}}))),
                         "stored, rejected 2: puts in progress hold 12288 bytes"));
  CHECK(absl::StartsWith(
      ReadAnswers(t.Ask(Kind::kPut,
                        t.PutBody({{.name = 3, .bytes = 5000, .tail = std::string(16385, 't')}}))),
      "rejected 3: "));
  t.store().BeginDrain();
  CHECK(absl::StartsWith(ReadAnswers(t.Ask(Kind::kPut, t.PutBody({{.name = 4, .bytes = 5000}}))),
                         "rejected 5: "));
  CHECK(absl::IsInvalidArgument(
      t.Ask(Kind::kPut, t.PutBody({{.name = 5, .bytes = 5000, .part = 4}})).status));
}

TEST_CASE("a put that is wrong anywhere does nothing and names the field") {
  PeerTester t(PeerWorld(), [](LocalLimits* limits) {
    limits->max_put_chunks = 3;
    limits->max_put_runs = 4;
  });
  t.Open();
  t.Stage(8192);
  struct Edited {
    local::PutRequest request;
    local::PutChunk chunks[2];
    local::PutRun runs[2];
  };
  const auto ask = [&](const std::function<void(Edited*)>& edit, size_t extra = 0) {
    auto body = t.PutBody({{.name = 1, .bytes = 4000}, {.name = 2, .offset = 4096, .bytes = 4096}});
    Edited edited;
    REQUIRE(body.size() == sizeof(edited));
    std::memcpy(&edited, body.data(), sizeof(edited));
    edit(&edited);
    std::memcpy(body.data(), &edited, sizeof(edited));
    body.resize(body.size() + extra);
    const SentMessage reply = t.Ask(Kind::kPut, body);
    CHECK(absl::IsInvalidArgument(reply.status));
    return std::string(reply.status.message());
  };
  const auto says = [](const std::string& message, const std::string& what) {
    INFO(message);
    CHECK(absl::StrContains(message, what));
  };
  says(ask([](Edited* e) { e->request.chunks = 0; }), "chunks is 0");
  says(ask([](Edited* e) { e->request.chunks = 4; }), "allowed are 1 to 3");
  says(ask([](Edited* e) { e->request.chunks = 3; }), "need more bytes");
  says(ask([](Edited* e) { e->request.runs = 5; }), "runs is 5");
  says(ask([](Edited* e) { e->request.runs = 3; }), "need more bytes");
  says(ask([](Edited*) {}, 1), "tail_bytes of all chunks are 0, after the runs come 1");
  says(ask([](Edited* e) { e->chunks[0].tail_bytes = 5; }), "tail_bytes of all chunks are 5");
  says(ask([](Edited* e) { e->chunks[1].flags = 32; }), "chunks[1].flags is 32");
  says(ask([](Edited* e) { e->chunks[1].payload_bytes = 4095; }),
       "chunks[1].payload_bytes is 4095");
  says(ask([](Edited* e) { e->chunks[1].first_run = UINT32_MAX; }), "its runs end at 4294967296");
  says(ask([](Edited* e) { e->chunks[1].runs = UINT32_MAX; }), "its runs end at 4294967296");
  says(ask([](Edited* e) { e->runs[0].region = 9; }), "runs[0].region is 9");
  says(ask([](Edited* e) { e->runs[0].bytes = 0; }), "runs[0].bytes is 0");
  const uint64_t beyond = RoundUp(8192, PageBytes()) - 4095;
  says(ask([=](Edited* e) { e->runs[1].offset = beyond; }),
       absl::StrCat("runs[1]: 4096 bytes at ", beyond));
  says(ask([](Edited* e) { e->runs[1].offset = UINT64_MAX; }), "runs[1]: 4096 bytes at 1844674");
  says(ask([](Edited* e) { e->runs[1].offset = UINT64_MAX - 4095; }), "runs[1]");
  CHECK(absl::IsInvalidArgument(t.Ask(Kind::kPut, std::vector<std::byte>(23)).status));
  CHECK(t.store().snapshot().g2.chunks == 0);
  CHECK(t.counters.puts_copying == 0);
  CHECK(t.store().snapshot().counters.puts_aborted == 0);  // nothing was even reserved
}

TEST_CASE("a put in an unknown namespace or without staging memory is refused") {
  PeerTester t;
  t.Open();
  CHECK(absl::StrContains(
      std::string(t.Ask(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5}})).status.message()),
      "there is no staging memory"));
  t.Stage(4096);
  t.ns.bytes[0] ^= 1;
  CHECK(absl::IsFailedPrecondition(t.Ask(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5}})).status));
}

TEST_CASE("chunks may share runs and runs may overlap: each chunk is the sum of its own") {
  PeerTester t;
  t.Open();
  auto staging = t.Stage(8192);
  const auto bytes = MakePayload(5, 1, 8192);
  std::copy(bytes.begin(), bytes.end(), staging.begin());
  auto body = t.PutBody({{.name = 1, .bytes = 6000}, {.name = 2, .offset = 1000, .bytes = 6000}});
  local::PutChunk second;
  const size_t at = sizeof(local::PutRequest) + sizeof(second);
  std::memcpy(&second, body.data() + at, sizeof(second));
  second.first_run = 0;
  second.runs = 2;
  second.payload_bytes = 12'000;
  std::memcpy(body.data() + at, &second, sizeof(second));
  CHECK(ReadAnswers(t.Ask(Kind::kPut, body)) == "stored, stored");
  std::vector<std::byte> expected(12'000);
  std::copy_n(bytes.begin(), 6000, expected.begin());
  std::copy_n(bytes.begin() + 1000, 6000, expected.begin() + 6000);
  CHECK(t.Payload(t.Get({2}).places.at(0)) == expected);
}

TEST_CASE("a durable put says when its memory was read, and answers when it is on stable storage") {
  PeerTester t;
  t.Open();
  t.Stage(8192);
  t.sink.sent.clear();
  t.world.HoldIndex(true);
  const uint64_t id =
      t.Tell(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5000, .flags = local::kPutDurable},
                                    {.name = 2, .bytes = 3000}}));
  t.RunAll();
  REQUIRE(t.sink.sent.size() == 1);
  CHECK(t.sink.sent[0].kind == static_cast<uint16_t>(Kind::kPutCopied));
  CHECK(t.sink.sent[0].id == id);
  CHECK(t.peer->holds_something());
  CHECK(t.counters.puts_copying == 0);
  t.Stage(16'384);  // nothing reads the old one any more
  t.world.HoldIndex(false);
  t.Settle();
  t.world.clock().Advance(std::chrono::seconds(2));
  t.store().Tick();
  t.RunAll();
  CHECK(ReadAnswers(t.TakeReply(id)) == "stored, stored");
  CHECK_FALSE(t.peer->holds_something());
}

TEST_CASE("what cannot be made durable is rejected as such") {
  WorldOptions options = PeerWorld();
  options.device_blocks = {};
  PeerTester t(options);
  t.Open();
  t.Stage(8192);
  const SentMessage reply =
      t.Ask(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5000, .flags = local::kPutDurable}}));
  CHECK(absl::StartsWith(ReadAnswers(reply), "rejected 6: durable: in G2, but not on stable"));
}

TEST_CASE("with too many puts in flight the peer wants no more until one is done") {
  PeerTester t(PeerWorld(), [](LocalLimits* limits) { limits->max_puts_in_flight = 2; });
  t.Open();
  t.Stage(8192);
  CHECK(t.peer->ready());
  const uint64_t first = t.Tell(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5000}}));
  CHECK(t.peer->ready());
  t.Tell(Kind::kPut, t.PutBody({{.name = 2, .bytes = 5000}}));
  CHECK_FALSE(t.peer->ready());
  t.RunAll();
  CHECK(t.peer->ready());
  CHECK(t.HasReply(first));
}

TEST_CASE("a large chunk is copied in tasks of a piece, a few at a time") {
  WorldOptions options = PeerWorld();
  options.g2_blocks = 8192;
  options.store.max_reserved_bytes = 12 * kMiB;
  PeerTester t(options);
  t.Open();
  t.Stage(12 * kMiB);
  t.Tell(Kind::kPut, t.PutBody({{.name = 1, .bytes = 3 * kMiB}}));
  CHECK(t.world.executor().size() == 3);
  t.RunAll();
  t.Tell(Kind::kPut, t.PutBody({{.name = 2, .bytes = 8 * kMiB}, {.name = 3, .bytes = 1}}));
  CHECK(t.world.executor().size() ==
        std::clamp<size_t>(std::thread::hardware_concurrency(), 4, 8));
  t.RunAll();
  // Small ones share a task.
  std::vector<TestChunk> small;
  for (uint64_t name = 100; name < 150; ++name) small.push_back({.name = name, .bytes = 4096});
  t.Tell(Kind::kPut, t.PutBody(small));
  CHECK(t.world.executor().size() == 1);
  t.RunAll();
  CHECK(t.Get({2, 3, 149}).places.size() == 3);
}

TEST_CASE("a small put from staging memory waits for no copy thread") {
  PeerTester t(PeerWorld(),
               [](LocalLimits* limits) { limits->loop_copy_bytes = 18 * kBlockBytes; });
  t.Open();
  auto staging = t.Stage(kMiB);
  constexpr uint32_t kHalf = 32 * kKiB;  // nine blocks with its header
  const auto payload = MakePayload(1, 1, 2 * kHalf);
  std::copy(payload.begin(), payload.end(), staging.begin());
  const auto on_loop = [&t](const std::vector<TestChunk>& chunks) {
    const uint64_t put = t.Tell(Kind::kPut, t.PutBody(chunks));
    CHECK(!t.HasReply(put));  // never within the call
    t.loop->RunAll();
    const bool replied = t.HasReply(put);
    t.RunAll();
    return std::pair(replied, ReadAnswers(t.TakeReply(put)));
  };
  const std::vector<TestChunk> two = {{.name = 1, .bytes = kHalf},
                                      {.name = 2, .offset = kHalf, .bytes = kHalf}};
  CHECK(on_loop(two) == std::pair(true, std::string("stored, stored")));
  CHECK(t.Payload(t.Get({2}).places.at(0)) ==
        std::vector<std::byte>(payload.begin() + kHalf, payload.end()));
  CHECK(on_loop(two).second == "present, present");
  const auto [replied, wrong] = on_loop({{.name = 3,
                                          .bytes = kHalf,
                                          .flags = local::kPutHasChecksum,
                                          .checksum = SumOf(payload) + 1}});
  CHECK(replied);
  CHECK(absl::StartsWith(wrong, "rejected"));

  // More bytes, chunks or runs than are worth it.
  CHECK(on_loop({{.name = 4, .bytes = 2 * kHalf + 2 * kBlockBytes}}) ==
        std::pair(false, std::string("stored")));
  std::vector<TestChunk> many;
  for (uint64_t name = 5; name < 10; ++name) many.push_back({.name = name, .bytes = 10});
  CHECK(!on_loop(many).first);
  CHECK(!on_loop({{.name = 10, .bytes = 100, .runs = 65}}).first);
  CHECK(on_loop({{.name = 11, .bytes = 128, .runs = 64}}).first);
}

TEST_CASE(
    "of small puts that waited for others one is copied at a time, the rest by copy threads") {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = kMiB + 16 * kBlockBytes;
  PeerTester t(options, [](LocalLimits* limits) { limits->loop_copy_bytes = 18 * kBlockBytes; });
  t.Open();
  t.Stage(2 * kMiB);
  const uint64_t large =
      t.Tell(Kind::kPut, t.PutBody({{.name = 1, .bytes = kMiB + 14 * kBlockBytes}}));
  std::vector<uint64_t> small;
  for (uint64_t name = 2; name < 5; ++name) {
    small.push_back(t.Tell(Kind::kPut, t.PutBody({{.name = name, .bytes = 5000}})));
  }
  t.world.executor().RunAll();  // the large one's copies
  t.loop->RunAll();
  CHECK(t.HasReply(large));
  CHECK(t.HasReply(small[0]));
  CHECK(!t.HasReply(small[1]));
  t.RunAll();
  for (const uint64_t put : small) CHECK(ReadAnswers(t.TakeReply(put)) == "stored");
}

TEST_CASE("chunks over the tenant's rate are rejected one by one, and no put waits for it") {
  WorldOptions options = PeerWorld();
  options.store.tenants = {{.g2_segments = 2, .bytes_per_second = 3 * 8192}};
  PeerTester t(options);
  t.Open();
  t.Stage(8192);
  std::vector<TestChunk> chunks;
  for (uint64_t name = 1; name <= 5; ++name) chunks.push_back({.name = name, .bytes = 8192});
  const SentMessage reply = t.Ask(Kind::kPut, t.PutBody(chunks));
  const std::string answers = ReadAnswers(reply);
  CHECK(absl::StartsWith(answers, "stored, stored, stored, rejected 2: bytes_per_second: "));
  CHECK(absl::StrContains(answers, "ms, rejected 2: bytes_per_second: "));
  CHECK(t.store().snapshot().tenants[0].counters.byte_rate_refusals == 2);
  // Its lookups go on; requests that move bytes are refused as a whole.
  CHECK(t.Ask(Kind::kLookup, t.KeysBody({1}, LeaseMode::kNone)).status.ok());
  const absl::Status over = t.Ask(Kind::kGet, t.KeysBody({1}, LeaseMode::kLeadingRun)).status;
  CHECK(absl::IsResourceExhausted(over));
  CHECK(absl::StartsWith(std::string(over.message()), "bytes_per_second: "));
}

TEST_CASE("a request is timed until its answer, a put until its last chunk is there") {
  ManualClock clock;
  RequestTimes times(&clock);
  std::vector<std::string> slow;
  times.OnSlow([&slow](const SlowRequest& one) {
    slow.push_back(absl::StrCat(kOperationNames[static_cast<size_t>(one.operation)], " ",
                                one.requester.peer, " ", one.requester.keys));
  });
  times.SetSlow(std::chrono::milliseconds(1));
  const auto count = [&times](Operation operation) {
    return times.counts(Listener::kLocal, operation).count();
  };
  PeerTester t;
  t.context->times = &times;
  t.Open();
  const auto payload = MakePayload(1, 1, 5000);
  auto staging = t.Stage(kMiB);
  std::copy(payload.begin(), payload.end(), staging.begin());
  const uint64_t sessions = count(Operation::kSession);
  CHECK(sessions >= 2);  // namespace, staging
  const uint64_t put = t.Tell(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5000}}));
  CHECK(count(Operation::kPut) == 0);  // under way
  clock.Advance(std::chrono::milliseconds(7));
  t.RunAll();
  CHECK(ReadAnswers(t.TakeReply(put)) == "stored");
  CHECK(count(Operation::kPut) == 1);
  CHECK(times.counts(Listener::kLocal, Operation::kPut).sum == 7'000'000);
  CHECK(slow == std::vector<std::string>{"put test 0"});
  t.Get({1, 2});
  CHECK(count(Operation::kGet) == 1);
  // Refused requests count as asked, too.
  CHECK_FALSE(t.Ask(Kind::kPut, {}).status.ok());
  CHECK(count(Operation::kPut) == 2);
  CHECK_FALSE(t.Ask(Kind::kLookup, {}).status.ok());
  CHECK(count(Operation::kLookup) == 1);
  CHECK(count(Operation::kSession) == sessions);
  CHECK(times.counts(Listener::kGrpc, Operation::kGet).count() == 0);
}

}  // namespace kvkeep
