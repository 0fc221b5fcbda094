#include "server/fleet/handover.h"

#include <catch2/catch.hpp>
#include <deque>
#include <set>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/manual_executor.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;

constexpr uint32_t kOfferedPayload = 1 << 20;

OfferedChunk HotChunk(uint32_t number, uint8_t ns = 0) {
  OfferedChunk chunk{.id = {}, .shape = {kOfferedPayload, 0}};
  chunk.id.ns.bytes[0] = ns;
  chunk.id.part = PartId(number);
  return chunk;
}

// Another node. Offers wait until Answer is called.
class FakeTaker final : public OfferTaker {
 public:
  explicit FakeTaker(std::string name) : name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  bool reachable() const override { return is_reachable; }
  void Offer(std::vector<OfferedChunk> chunks, MonotonicTime deadline,
             std::function<void(absl::StatusOr<OfferAnswer>)> done) override {
    last_deadline = deadline;
    offered += chunks.size();
    offers.push_back({std::move(chunks), std::move(done)});
  }

  // Answers the offers that wait; returns whether there were some.
  bool Answer() {
    if (offers.empty()) return false;
    auto [chunks, done] = std::move(offers.front());
    offers.pop_front();
    if (!error.ok()) {
      done(error);
      return true;
    }
    OfferAnswer answer;
    size_t took = 0;
    for (const OfferedChunk& chunk : chunks) {
      const bool takes = has.size() < room && took++ < at_once;
      if (takes) has.insert(chunk.id.part.value());
      answer.chunks.push_back(takes ? OfferEnd::kTaken : OfferEnd::kRefused);
    }
    answer.full = has.size() >= room && says_full;
    done(answer);
    return true;
  }

  bool is_reachable = true, says_full = true;
  size_t room = SIZE_MAX, at_once = SIZE_MAX, offered = 0;
  absl::Status error;
  std::set<uint32_t> has;
  struct Waiting {
    std::vector<OfferedChunk> chunks;
    std::function<void(absl::StatusOr<OfferAnswer>)> done;
  };
  std::deque<Waiting> offers;
  MonotonicTime last_deadline{0};

 private:
  const std::string name_;
};

struct Leaving {
  explicit Leaving(size_t peers, uint32_t chunks, uint64_t rate = uint64_t{1} << 40) {
    for (uint32_t i = 0; i < chunks; ++i) hot.hottest.push_back(HotChunk(i));
    hot.all = chunks;
    for (size_t i = 0; i < peers; ++i) {
      takers.push_back(std::make_shared<FakeTaker>(std::string(1, static_cast<char>('a' + i))));
    }
    clock.Advance(seconds(100));
    handover = std::make_unique<Handover>(
        Handover::Options{.bytes_per_second = rate}, [this] { return hot; }, &executor, &clock);
    Tick();
  }
  void BeginAt(MonotonicTime deadline) {
    handover->Begin(deadline);
    executor.RunAll();
  }
  ~Leaving() {
    handover->Stop();
    for (const auto& taker : takers) {
      while (taker->Answer()) continue;
    }
  }
  void Begin(seconds within = seconds(60)) { BeginAt(clock.Now() + within); }
  void Tick() { handover->Tick({takers.begin(), takers.end()}); }
  // Answers all, and passes time, until the hand-over has ended. Returns the time that it took.
  MonotonicTime Run() {
    const MonotonicTime began = clock.Now();
    while (handover->state().under_way) {
      bool some = false;
      for (const auto& taker : takers) some |= taker->Answer();
      if (some) continue;
      clock.Advance(std::chrono::milliseconds(100));
      Tick();
      REQUIRE(clock.Now() < began + seconds(1000));
    }
    return clock.Now() - began;
  }

  HotChunks hot;
  ManualClock clock;
  ManualExecutor executor;
  std::vector<std::shared_ptr<FakeTaker>> takers;
  std::unique_ptr<Handover> handover;
};

}  // namespace

TEST_CASE("every chunk goes to one node, the hottest first") {
  Leaving l(2, 200);
  l.Begin();
  CHECK(l.handover->state() == HandedOver{.chunks = 0, .left = 200, .under_way = true});
  REQUIRE(l.takers[0]->offers.size() == 1);
  REQUIRE(l.takers[1]->offers.size() == 1);
  const auto first_of = [&](size_t taker) {
    return l.takers[taker]->offers.front().chunks.front().id.part.value();
  };
  CHECK(std::min(first_of(0), first_of(1)) == 0);
  CHECK(std::max(first_of(0), first_of(1)) == Handover::kLeastChunks);
  l.Run();
  CHECK(l.handover->state() == HandedOver{.chunks = 200, .left = 0, .under_way = false});
  CHECK(l.takers[0]->has.size() + l.takers[1]->has.size() == 200);
  CHECK(l.takers[0]->has.size() > 60);
  CHECK(l.takers[1]->has.size() > 60);
  CHECK(l.handover->counters().handed_chunks == 200);
  // A second drain has nothing more to do.
  l.Begin();
  CHECK_FALSE(l.handover->state().under_way);
  CHECK(l.handover->state().chunks == 200);
}

TEST_CASE("what one node has no room for goes to the next one; what nobody takes is left") {
  Leaving l(3, 100);
  l.takers[0]->room = 10;
  l.takers[1]->room = 0;
  l.takers[2]->room = 50;
  l.Begin();
  CHECK(l.Run() < seconds(1));
  CHECK(l.handover->state() == HandedOver{.chunks = 60, .left = 40, .under_way = false});
  CHECK(l.takers[0]->has.size() == 10);
  CHECK(l.takers[2]->has.size() == 50);
  CHECK(l.takers[1]->offered <= Handover::kLeastChunks);  // it said at once that it is full
}

TEST_CASE("a batch stays with the node that takes it piece by piece") {
  Leaving l(3, 100);
  for (const auto& taker : l.takers) taker->at_once = 5;
  l.Begin();
  l.Run();
  CHECK(l.handover->state().chunks == 100);
  for (const auto& taker : l.takers) {
    if (taker->has.empty()) continue;
    const bool first = taker->has.contains(0);
    CHECK(taker->has.size() == (first ? 64 : 36));
    CHECK(*taker->has.begin() == (first ? 0 : 64));
  }
}

TEST_CASE("chunks that were not named, as there are too many, are left") {
  Leaving l(1, 10);
  l.hot.all = 1000;
  l.Begin();
  l.Run();
  CHECK(l.handover->state() == HandedOver{.chunks = 10, .left = 990, .under_way = false});
}

TEST_CASE("a node that dies in the middle costs nothing that others take") {
  Leaving l(2, 100);
  l.Begin();
  l.takers[0]->is_reachable = false;
  l.takers[0]->error = absl::UnavailableError("dead");
  l.Run();
  CHECK(l.handover->state() == HandedOver{.chunks = 100, .left = 0, .under_way = false});
  CHECK(l.takers[1]->has.size() == 100);
}

TEST_CASE("nobody is there, or nobody any more: it ends soon") {
  Leaving nobody(0, 10);
  nobody.Begin();
  CHECK(nobody.handover->state().under_way);
  nobody.Tick();
  CHECK(nobody.handover->state() == HandedOver{.chunks = 0, .left = 10, .under_way = false});
  Leaving away(1, 10);
  away.takers[0]->is_reachable = false;
  away.Tick();
  away.Begin();
  const MonotonicTime took = away.Run();
  CHECK(took > seconds(2));
  CHECK(took < seconds(5));
  CHECK(away.handover->state().left == 10);
}

TEST_CASE("a node that drains as soon as it has started waits for the others") {
  Leaving l(1, 10);
  Handover fresh(
      {.bytes_per_second = 1 << 30}, [&l] { return l.hot; }, &l.executor, &l.clock);
  fresh.Begin(l.clock.Now() + seconds(60));
  l.executor.RunAll();
  CHECK(fresh.state().under_way);
  fresh.Tick({l.takers[0]});
  REQUIRE(l.takers[0]->Answer());
  CHECK(fresh.state() == HandedOver{.chunks = 10, .left = 0, .under_way = false});
}

TEST_CASE("it ends at its deadline, whatever is under way") {
  Leaving l(1, 100);
  l.Begin(seconds(2));
  CHECK(l.takers[0]->last_deadline == l.clock.Now() + seconds(2));
  l.clock.Advance(seconds(2));
  l.Tick();
  CHECK(l.handover->state() == HandedOver{.chunks = 0, .left = 100, .under_way = false});
  CHECK(l.handover->busy());
  REQUIRE(l.takers[0]->Answer());
  CHECK_FALSE(l.handover->busy());
  CHECK(l.takers[0]->offers.empty());
}

TEST_CASE("a node that takes no offers is asked once") {
  Leaving l(2, 100);
  l.takers[0]->error = absl::UnimplementedError("an older version");
  l.Begin();
  l.Run();
  CHECK(l.takers[0]->offered <= Handover::kLeastChunks);
  CHECK(l.takers[1]->has.size() == 100);
}

TEST_CASE("a node that takes nothing and does not say why is given up") {
  Leaving l(1, 100);
  l.takers[0]->room = 0;
  l.takers[0]->says_full = false;
  SECTION("it refuses") {
    l.Begin();
    CHECK(l.Run() < seconds(20));
    CHECK(l.handover->counters().offers == Handover::kMostFruitless);
  }
  SECTION("it is always busy: it may be well soon, so it is asked until the deadline") {
    l.takers[0]->error = absl::ResourceExhaustedError("busy");
    l.Begin(seconds(60));
    CHECK(l.Run() == seconds(60));
    CHECK(l.handover->counters().offers < 100);
  }
  CHECK(l.handover->state() == HandedOver{.chunks = 0, .left = 100, .under_way = false});
}

TEST_CASE("it keeps to its rate; a node that serves nothing offers nothing") {
  Leaving l(2, 200, 10 << 20);
  l.Begin(seconds(500));
  const MonotonicTime took = l.Run();
  CHECK(l.handover->state().chunks == 200);
  CHECK(took > seconds(15));
  CHECK(took < seconds(22));
  Leaving none(1, 10, 0);
  none.Begin();
  CHECK(none.handover->state() == HandedOver{.chunks = 0, .left = 10, .under_way = false});
  CHECK(none.takers[0]->offered == 0);
}

TEST_CASE("an offer is of one namespace") {
  Leaving l(1, 0);
  for (uint32_t i = 0; i < 8; ++i) l.hot.hottest.push_back(HotChunk(i, i % 2));
  l.hot.all = 8;
  l.Begin();
  for (int offers = 0; offers < 2; ++offers) {
    REQUIRE(l.takers[0]->offers.size() == 1);
    const std::vector<OfferedChunk>& chunks = l.takers[0]->offers.front().chunks;
    CHECK(chunks.size() == 4);
    for (const OfferedChunk& chunk : chunks) CHECK(chunk.id.ns == chunks.front().id.ns);
    l.takers[0]->Answer();
  }
  CHECK(l.handover->state().chunks == 8);
}

TEST_CASE("a second drain meanwhile may give it more time") {
  Leaving l(1, 100);
  l.Begin(seconds(2));
  l.Begin(seconds(20));
  l.clock.Advance(seconds(10));
  l.Tick();
  CHECK(l.handover->state().under_way);
  l.Run();
  CHECK(l.handover->state().left == 0);
}

}  // namespace kvkeep
