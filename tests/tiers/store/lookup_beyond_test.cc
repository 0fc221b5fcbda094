// Lookups that search beyond the node: chunks that come are reported and leased; space is promised,
// bytes are not.
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/tiers/store/store_tester.h"
#include "tiers/store/beyond_limits.h"

namespace kvkeep {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A node that has lost chunks 1 to `chunks`, which lie beyond it.
struct LostNode {
  explicit LostNode(uint64_t chunks = 10) : s(WithRemote()) {
    for (uint64_t name = 1; name <= chunks; ++name) {
      CHECK(s.Put(name) == "stored");
      s.Settle();
    }
    REQUIRE(s.world.bucket().size() == chunks);
    s.world.Kill();
    s.world.LoseArena();
    s.world.SetAttached(0, false);
    s.world.Start();
    s.Connect();
  }
  static WorldOptions WithRemote() {
    WorldOptions options = SmallWorld();
    options.remote = true;
    options.g2_blocks = 128;  // coming chunks may take a quarter
    options.g2_segment_blocks = 128;
    return options;
  }

  LookupRequest Request(const std::vector<uint64_t>& names, LeaseMode mode,
                        microseconds recompute) {
    keys.clear();
    for (const uint64_t name : names) keys.push_back(MakeKey(name));
    return {.chunks = {s.ns, keys, parts},
            .lease_mode = mode,
            .beyond = {.wait = milliseconds(50), .recompute_per_key = recompute}};
  }
  // Asks, and looks as soon as that is answered, before anything has come.
  LookupResult Ask(const std::vector<uint64_t>& names, LeaseMode mode = LeaseMode::kLeadingRun,
                   microseconds recompute = microseconds(0)) {
    const LookupRequest request = Request(names, mode, recompute);
    bool searched = false;
    const auto result =
        s.store().LookupOrSearch(s.session, request, [&searched] { searched = true; });
    asked = !result.has_value();
    if (!asked) return result->value();
    while (!searched) REQUIRE(s.world.RunOneAtRandom());
    LookupRequest again = request;
    again.after_search = true;
    return s.store().Lookup(s.session, again).value();
  }
  RemoteCounters counters() { return *s.store().snapshot().remote; }

  StoreTester s;
  std::vector<ChunkKey> keys;
  const std::vector<PartId> parts = {PartId(0)};
  bool asked = false;
};

std::vector<uint64_t> Names(uint64_t first, uint64_t last) {
  std::vector<uint64_t> names(last - first + 1);
  std::iota(names.begin(), names.end(), first);
  return names;
}

const std::vector<uint64_t> kNames = Names(1, 10);

}  // namespace

TEST_CASE("a lookup that asks is told what comes from beyond the node, leases it and reads it") {
  LostNode node;
  StoreTester& s = node.s;
  const LookupResult found = node.Ask(kNames);
  CHECK(node.asked);
  CHECK(found.leading_keys == 0);
  CHECK(found.beyond_keys == 10);
  CHECK(found.leased_keys == 10);
  CHECK(found.coming_parts == std::vector<uint64_t>(10, 1));
  CHECK(found.g2_parts == std::vector<uint64_t>(10, 0));
  CHECK(s.store().snapshot().g2.leased_bytes == 10 * 2 * kBlockBytes);
  for (const uint64_t name : kNames) CHECK(s.Get(name, found.lease) == "hit");
  CHECK(s.Release(found.lease).ok());
  CHECK(node.Ask(kNames).leading_keys == 10);
  CHECK_FALSE(node.asked);  // all is here
}

TEST_CASE("a lookup that lacks nothing looks at its keys once, whatever lies beyond the node") {
  LostNode node;
  StoreTester& s = node.s;
  node.Ask(kNames);
  s.RunAll();  // all is here now
  const auto takes = [&s](const auto& call) {
    const uint64_t before = s.store().snapshot().lock_hold.count();
    call();
    return s.store().snapshot().lock_hold.count() - before;
  };
  LookupRequest request = node.Request(kNames, LeaseMode::kLeadingRun, microseconds(0));
  request.beyond = {};
  const auto look = [&] { CHECK(s.store().Lookup(s.session, request).ok()); };
  look();  // their first use is offered to G3
  const uint64_t plain = takes(look);
  const uint64_t asking = takes([&node] { CHECK(node.Ask(kNames).leading_keys == 10); });
  CHECK_FALSE(node.asked);
  CHECK(asking == plain);
  // After a search it is looked up again, and counted and told to the policies once.
  LostNode other;
  const uint64_t before = other.s.store().snapshot().counters.lookup_keys;
  other.Ask(kNames);
  CHECK(other.asked);
  CHECK(other.s.store().snapshot().counters.lookup_keys == before + kNames.size());
}

TEST_CASE("what a lookup recalled is evicted from its tail, before what was here already") {
  LostNode node;
  StoreTester& s = node.s;
  const auto recall_and_evict = [&](uint64_t chunks) {
    CHECK(s.Release(node.Ask(kNames, LeaseMode::kLeadingRun, milliseconds(50)).lease).ok());
    CHECK(node.asked);
    s.RunAll();
    REQUIRE(s.store().Evict({.bytes = chunks * 2 * kBlockBytes})->chunks == chunks);
    return s.Lookup(kNames, LeaseMode::kNone).leading_keys;
  };
  CHECK(recall_and_evict(4) == 6);  // all ten were recalled
  CHECK(recall_and_evict(4) == 6);  // four of them
}

TEST_CASE("who does not ask is promised nothing that is still on its way") {
  LostNode node;
  StoreTester& s = node.s;
  CHECK(s.Lookup(kNames).coming_parts.empty());
  CHECK(node.counters().searches == 0);
  const LookupResult asker = node.Ask(kNames);
  const LookupResult other = s.Lookup(kNames);
  CHECK(other.leading_keys == 0);
  CHECK(other.beyond_keys == 0);
  CHECK(other.lease == LeaseId(0));
  s.RunAll();
  CHECK(s.Lookup(kNames).leading_keys == 10);
}

TEST_CASE("a get has what is still on its way too, whoever asked for it, and waits for it") {
  LostNode node;
  StoreTester& s = node.s;
  CHECK(node.Ask(kNames).leased_keys == 10);
  LookupRequest get = node.Request(kNames, LeaseMode::kAllPresent, microseconds(0));
  get.beyond = {};
  get.want_places = true;
  const LookupResult found = s.store().Lookup(s.session, get).value();
  CHECK(found.coming_parts.empty());  // it did not ask
  CHECK(found.leading_keys == 0);
  REQUIRE(found.places.size() == 10);
  for (const ChunkPlace& place : found.places) CHECK_FALSE(place.readable);
  for (const uint64_t name : kNames) CHECK(s.Get(name, found.lease) == "hit");
  // The run of an engine that acquires one is of chunks that are here.
  LostNode other;
  other.Ask(kNames);
  LookupRequest run = other.Request(kNames, LeaseMode::kLeadingRun, microseconds(0));
  run.beyond = {};
  run.want_places = true;
  CHECK(other.s.store().Lookup(other.s.session, run).value().places.empty());
}

TEST_CASE("a second one that asks shares what the first one has begun") {
  LostNode node;
  CHECK(node.Ask(kNames).leased_keys == 10);
  const LookupResult second = node.Ask(kNames);
  CHECK_FALSE(node.asked);
  CHECK(second.beyond_keys == 10);
  CHECK(second.leased_keys == 10);
  node.s.RunAll();
  CHECK(node.counters().recalled_chunks == 10);
}

TEST_CASE("what is leased and does not come is a miss, and its space is free with the lease") {
  LostNode node;
  StoreTester& s = node.s;
  const LookupResult found = node.Ask(kNames);
  CHECK(found.leased_keys == 10);
  s.world.bucket().erase(s.Id(3));
  s.world.bucket().erase(s.Id(4));
  s.RunAll();
  CHECK(s.Get(2, found.lease) == "hit");
  CHECK(s.Get(3, found.lease) == "miss");
  CHECK(s.Get(4) == "miss");
  CHECK(s.Get(5, found.lease) == "hit");
  CHECK(s.Put(3, 4096) == "stored");
  CHECK(s.Get(3) == "hit");
  CHECK(s.Release(found.lease).ok());
  s.Settle();
  s.store().CheckInvariants();
  CHECK(s.store().snapshot().g2.leased_bytes == 0);
  CHECK(s.store().snapshot().g2.used_bytes == 9 * 2 * kBlockBytes);
}

TEST_CASE("a run from the head ends where something is absent; all that is there may be leased") {
  LostNode node;
  node.s.world.bucket().erase(node.s.Id(5));
  const LookupResult run = node.Ask(kNames);
  CHECK(run.beyond_keys == 4);
  CHECK(run.leased_keys == 4);
  CHECK(node.s.world.remote().last_wanted == RemoteSource::Wanted::kLeadingRun);
  node.s.RunAll();
  CHECK(node.counters().recalled_chunks == 4);
  LookupResult all = node.Ask(Names(5, 14), LeaseMode::kAllPresent);
  CHECK(all.beyond_keys == 0);
  CHECK(node.s.world.remote().last_wanted == RemoteSource::Wanted::kAny);
  CHECK(all.coming_parts == std::vector<uint64_t>{0, 1, 1, 1, 1, 1, 0, 0, 0, 0});
  CHECK(node.s.Get(10, all.lease) == "hit");
}

TEST_CASE("a few missing chunks are not asked for, unless their cost is known") {
  LostNode node;
  CHECK(node.Ask(Names(1, 7)).beyond_keys == 0);
  CHECK_FALSE(node.asked);
  CHECK(node.counters().declined_few == 1);
  CHECK(node.counters().searches == 0);
  CHECK(node.Ask(Names(1, 1), LeaseMode::kLeadingRun, std::chrono::seconds(1)).beyond_keys == 0);
  CHECK(node.counters().declined_few == 2);
  CHECK(node.Ask(Names(1, 2), LeaseMode::kLeadingRun, std::chrono::seconds(1)).beyond_keys == 2);
  CHECK(node.asked);
}

TEST_CASE("a single chunk is asked for by who cannot compute it") {
  LostNode node;
  CHECK(node.Ask({3}, LeaseMode::kAllPresent, kNotComputable - microseconds(1))
            .leased_keys == 0);
  CHECK(node.counters().declined_few == 1);
  const LookupResult found =
      node.Ask({3}, LeaseMode::kAllPresent, kNotComputable);
  CHECK(node.asked);
  CHECK(found.coming_parts == std::vector<uint64_t>{1});
  CHECK(node.s.Get(3, found.lease) == "hit");
  CHECK(node.counters().declined_few == 1);
}

TEST_CASE("who has asked enough for now asks nobody, and that is counted") {
  LostNode node;
  node.s.world.remote().asks = false;
  CHECK(node.Ask({1, 2, 3, 4, 5, 6, 7, 8}).beyond_keys == 0);
  CHECK_FALSE(node.asked);
  CHECK(node.counters().declined_rate == 1);
  std::string recall;
  const std::vector<ChunkKey> one = {MakeKey(1)};
  node.s.store().Recall(
      node.s.session, {node.s.ns, one, node.parts},
      [&recall](const absl::StatusOr<uint64_t>& came) { recall = came.status().ToString(); });
  node.s.RunAll();
  CHECK(recall == "UNAVAILABLE: what lies beyond the node was asked enough for now");
  CHECK(node.counters().declined_rate == 2);
  CHECK(node.counters().searches == 0);
  node.s.world.remote().asks = true;
  CHECK(node.Ask({1, 2, 3, 4, 5, 6, 7, 8}).beyond_keys == 8);
}

TEST_CASE("what would come later than it is computed is left where it is") {
  LostNode node;
  StoreTester& s = node.s;
  // The first ones are slow: 100 ms each.
  CHECK(node.Ask(Names(1, 2), LeaseMode::kLeadingRun, std::chrono::seconds(1)).beyond_keys == 2);
  s.world.clock().Advance(milliseconds(200));
  s.RunAll();
  CHECK(node.Ask(kNames, LeaseMode::kLeadingRun, milliseconds(1)).beyond_keys == 0);
  CHECK(node.counters().declined_cost == 1);
  CHECK(node.counters().recalled_chunks == 2);
  CHECK(node.Ask(kNames, LeaseMode::kLeadingRun, std::chrono::seconds(10)).beyond_keys == 8);
}

TEST_CASE("what was slow once is tried again later, as no read would correct the estimate") {
  LostNode node;
  StoreTester& s = node.s;
  CHECK(node.Ask(Names(1, 2), LeaseMode::kLeadingRun, std::chrono::seconds(10)).beyond_keys == 2);
  s.world.clock().Advance(std::chrono::seconds(5));
  s.RunAll();
  for (int minute = 0; minute < 2; ++minute) {
    const size_t keys = node.Ask(kNames, LeaseMode::kLeadingRun, milliseconds(1)).beyond_keys;
    CHECK(keys == (minute == 0 ? 0 : 8));
    s.world.clock().Advance(std::chrono::minutes(2));
    s.RunAll();
  }
}

TEST_CASE("a search ends with the wait, and what it began when computing it would have") {
  LostNode node;
  const MonotonicTime now = node.s.world.clock().Now();
  node.Ask(kNames, LeaseMode::kLeadingRun, milliseconds(30));
  CHECK(node.s.world.remote().find_deadline == now + milliseconds(50));
  node.s.RunAll();
  CHECK(node.s.world.remote().read_deadline == now + 10 * milliseconds(30));
}

TEST_CASE("a get of what a lookup promised waits for a while, and it comes all the same") {
  LostNode node;
  StoreTester& s = node.s;
  const LookupResult found = node.Ask(kNames);
  REQUIRE(found.leased_keys == 10);
  ChunkReader reader = s.Pin(1, found.lease);
  REQUIRE(reader);
  std::string answer = "waiting";
  const auto wait = [&] {
    answer = "waiting";
    reader.WhenReady(0, 1, [&answer](const absl::Status& status) {
      answer = status.ok() ? "ok" : absl::StatusCodeToString(status.code());
    });
  };
  wait();
  s.world.clock().Advance(kLeastWaitForPieces - milliseconds(1));
  s.store().Tick();
  CHECK(answer == "waiting");
  SECTION("nobody asks again") {
    s.world.clock().Advance(milliseconds(1));
    s.store().Tick();
    CHECK(answer == "UNAVAILABLE");
    CHECK(node.counters().late_waits == 1);
    wait();
    CHECK(answer == "UNAVAILABLE");
    CHECK(node.counters().failed_recalls == 0);
    s.RunAll();
    wait();
    CHECK(answer == "ok");
    CHECK(s.Get(1, found.lease) == "hit");
    CHECK(node.counters().recalled_chunks == 10);
  }
  SECTION("who asks again is promised it again") {
    node.Ask(kNames);
    s.world.clock().Advance(kLeastWaitForPieces - milliseconds(1));
    s.store().Tick();
    CHECK(answer != "UNAVAILABLE");
    s.world.clock().Advance(milliseconds(1));
    s.store().Tick();
    CHECK(answer != "waiting");
  }
  s.RunAll();
  s.store().CheckInvariants();
}

TEST_CASE("a get waits on while pieces of what its lookup promised come, and no longer") {
  LostNode node;
  StoreTester& s = node.s;
  const LookupResult found = node.Ask(kNames);
  std::vector<ChunkReader> readers;
  std::vector<std::string> answers(kNames.size(), "waiting");
  for (size_t i = 0; i < kNames.size(); ++i) {
    readers.push_back(s.Pin(kNames[i], found.lease));
    readers[i].WhenReady(0, 1, [&answers, i](const absl::Status& status) {
      answers[i] = status.ok() ? "ok" : absl::StatusCodeToString(status.code());
    });
  }
  const MonotonicTime began = s.world.clock().Now();
  const auto run = [&s](int tasks) {  // each 20 ms after the last one
    for (int i = 0; i < tasks && s.world.RunOneAtRandom(); ++i) {
      s.world.clock().Advance(milliseconds(20));
      s.store().Tick();
    }
  };
  SECTION("all come") {
    run(1'000);
    CHECK(answers == std::vector<std::string>(kNames.size(), "ok"));
    CHECK(node.counters().late_waits == 0);
    CHECK(s.world.clock().Now() - began > kLeastWaitForPieces);
  }
  SECTION("some come") {
    run(30);
    CHECK(node.counters().late_waits == 0);
    CHECK(s.world.clock().Now() - began > kLeastWaitForPieces);
    s.world.clock().Advance(kLeastWaitForPieces);
    s.store().Tick();
    CHECK(node.counters().late_waits ==
          static_cast<uint64_t>(std::count(answers.begin(), answers.end(), "UNAVAILABLE")));
    CHECK(node.counters().late_waits > 0);
    CHECK(std::count(answers.begin(), answers.end(), "waiting") == 0);
    // More come, so who asks now is promised the rest again.
    run(2);
    node.Ask(kNames);
    const auto late = [&](size_t i) {
      std::string told = "waiting";
      readers[i].WhenReady(0, 1, [&told](const absl::Status& status) {
        told = status.ok() ? "ok" : absl::StatusCodeToString(status.code());
      });
      const bool is_late = told == "UNAVAILABLE";
      s.RunAll();
      return is_late;
    };
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (answers[i] == "UNAVAILABLE") CHECK_FALSE(late(i));
    }
  }
  s.RunAll();
  s.store().CheckInvariants();
}

TEST_CASE("a lookup is answered in time though its search is not; what that finds comes later") {
  LostNode node;
  StoreTester& s = node.s;
  int answers = 0;
  s.store().AskBeyond(s.session, node.Request(kNames, LeaseMode::kLeadingRun, microseconds(0)),
                      [&answers](bool asked) { answers += asked ? 1 : 100; });
  s.world.clock().Advance(milliseconds(49));
  s.store().Tick();
  CHECK(answers == 0);
  s.world.clock().Advance(milliseconds(1));
  s.store().Tick();
  CHECK(answers == 1);
  CHECK(node.counters().overdue_searches == 1);
  s.RunAll();
  CHECK(answers == 1);
  CHECK(s.Lookup(kNames).leading_keys == 10);
}

TEST_CASE("where nothing lies beyond, or it cannot be asked, the answer is that nobody was asked") {
  StoreTester plain;
  bool told = false, asked = true;
  const auto answer = [&](bool was) {
    told = true;
    asked = was;
  };
  const LookupRequest none{.chunks = {plain.ns, {}, {}}, .beyond = {.wait = milliseconds(1)}};
  plain.store().AskBeyond(plain.session, none, answer);
  CHECK(told);
  CHECK_FALSE(asked);
  LostNode node;
  node.s.world.remote().set_faults({.away = 1});
  CHECK(node.Ask(kNames).beyond_keys == 0);
  CHECK_FALSE(node.asked);
  CHECK(node.counters().recalls_refused == 1);
  node.s.world.remote().set_faults({});
  node.s.store().BeginDrain();
  CHECK(node.Ask(kNames).beyond_keys == 0);
  CHECK_FALSE(node.asked);
}

TEST_CASE("a wait or a cost beyond the limit is told with its name and the limit") {
  CHECK(BeyondOptions{.wait = std::chrono::seconds(10)}.Validate().ok());
  CHECK(BeyondOptions{.wait = std::chrono::seconds(10) + microseconds(1)}.Validate().message() ==
        "remote_wait_us is 10000001, allowed are at most 10000000");
  CHECK(BeyondOptions{.recompute_per_key = std::chrono::seconds(61)}.Validate().message() ==
        "recompute_us_per_key is 61000000, allowed are at most 60000000");
}

}  // namespace kvkeep
