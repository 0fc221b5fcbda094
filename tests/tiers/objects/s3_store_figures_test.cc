// S3Store's load on a bucket in trouble, in figures: breaker, window, retry budget and hedger with
// their defaults, over a server that takes its time. All time is virtual.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "tests/tiers/objects/scripted_bucket.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;

struct TimedAnswer {
  int status = 200;  // 0: there is no connection
  nanoseconds after{0};
};

// Answers take time, which ScriptedHttpEngine's do not. Single-threaded.
class TimedHttpEngine final : public HttpEngine {
 public:
  using Server = std::function<TimedAnswer()>;  // asked when a request comes

  TimedHttpEngine(ManualClock* clock, Server server) : clock_(*clock), server_(std::move(server)) {}
  ~TimedHttpEngine() override {
    while (!calls_.empty()) End(HttpCall(calls_.begin()->first), absl::CancelledError("stopped"));
  }

  HttpCall Start(HttpRequest request, Done done) override {
    const HttpCall call(++started_);
    const TimedAnswer is = server_();
    const nanoseconds most = std::min<nanoseconds>(request.first_byte_within,
                                                   request.deadline - clock_.Now());
    absl::Status way;
    if (is.status == 0) way = absl::UnavailableError("refused");
    if (is.after >= most) way = absl::DeadlineExceededError("late");
    RunAt(clock_.Now() + std::min(is.after, most), [this, call, way] { End(call, way); });
    calls_.emplace(call.value(), Call{std::move(request), std::move(done), is.status});
    return call;
  }
  void Cancel(HttpCall call) override {
    RunAt(clock_.Now(), [this, call] { End(call, absl::CancelledError("cancelled")); });
  }
  void RunAt(MonotonicTime at, Executor::Task task) override {
    tasks_.emplace(std::max(at, clock_.Now()), std::move(task));
  }
  void RunUntil(MonotonicTime until) {
    while (!tasks_.empty() && tasks_.begin()->first <= until) {
      auto due = tasks_.extract(tasks_.begin());
      clock_.Advance(due.key() - clock_.Now());
      std::move(due.mapped())();
    }
    clock_.Advance(until - clock_.Now());
  }

 private:
  struct Call {
    HttpRequest request;
    Done done;
    int status;
  };
  void End(HttpCall call, absl::Status way) {
    const auto at = calls_.find(call.value());
    if (at == calls_.end()) return;
    Call ended = std::move(at->second);
    calls_.erase(at);
    HttpAnswer answer{.status = std::move(way)};
    if (answer.status.ok()) {
      answer.connected = true;
      answer.head = {.status = ended.status, .headers = {{"ETag", "\"v\""}}, .content_bytes = 1};
      if (ended.status == 503) answer.text = "<Error><Code>SlowDown</Code></Error>";
      if (ended.status == 200) {
        answer.status = ended.request.sink->Begin(answer.head);
        if (answer.status.ok()) answer.status = ended.request.sink->Take(AsBytes("x"));
      }
    }
    std::move(ended.done)(std::move(answer));
  }

  ManualClock& clock_;
  const Server server_;
  uint64_t started_ = 0;
  std::multimap<MonotonicTime, Executor::Task> tasks_;
  std::map<uint64_t, Call> calls_;
};

// A quarter more or less.
nanoseconds Around(nanoseconds time, SeededRandom& random) {
  return time * 3 / 4 + nanoseconds(random.Below(static_cast<uint64_t>(time.count()) / 2));
}

// A bucket over a timed server, with the requests for its objects and their results.
struct TimedBucket {
  using Server = std::function<TimedAnswer(MonotonicTime now, SeededRandom& random)>;

  TimedBucket(uint64_t seed, const S3StoreOptions& options, Server by)
      : server(std::move(by)), server_random(seed + 100), random(seed) {
    credentials.Tick();
    auto timed = std::make_unique<TimedHttpEngine>(&clock, [this] {
      ++sent;
      const TimedAnswer answer = server(clock.Now(), server_random);
      taken += answer.status == 200;
      return answer;
    });
    engine = timed.get();
    store = std::make_unique<S3Store>(
        S3Urls::Make({.endpoints = {"http://h:9000"}, .bucket = "bucket"}).value(), options,
        std::move(timed), &credentials, &clock, &random);
  }

  void Advance(nanoseconds by) { engine->RunUntil(clock.Now() + by); }
  void Want(std::function<void()> then = nullptr) {
    ++wanted;
    store->Get({.name = "n"}, &sink, [this, then = std::move(then)](const ObjectAnswer& answer) {
      if (answer.ok()) {
        ++well;
        first_bytes.push_back(answer.first_byte);
      }
      if (then && answer.outcome != ObjectOutcome::kCancelled) then();
    });
  }
  // Keeps this many requests under way for ever: each begins as soon as the one before is answered.
  void WantAllTheTime(int callers) {
    const auto again = [this] {
      engine->RunAt(clock.Now() + milliseconds(1), [this] { WantAllTheTime(1); });
    };
    for (int i = 0; i < callers; ++i) Want(again);
  }
  // Whatever the results of those before.
  void WantSteadily(uint64_t count, nanoseconds each) {
    for (uint64_t i = 0; i < count; ++i) {
      Want();
      Advance(each);
    }
  }
  void Forget() {
    wanted = sent = taken = well = 0;
    first_bytes.clear();
  }

  Server server;
  ManualClock clock;
  uint64_t wanted = 0, sent = 0, taken = 0, well = 0;  // reads; requests; of them; reads
  std::vector<nanoseconds> first_bytes;  // of reads that went well
  TimedHttpEngine* engine = nullptr;
  SeededRandom server_random, random;
  S3Credentials credentials{
      std::make_unique<SetKeySource>(std::make_shared<std::string>("secret")), &clock, &random};
  TextObjectSink sink;
  std::unique_ptr<S3Store> store;
};

double PartOf(uint64_t part, uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// Accepts this many at a time, and refuses more, at once.
TimedBucket::Server TakesAtATime(size_t most, milliseconds each) {
  const auto ends = std::make_shared<std::multiset<MonotonicTime>>();
  return [most, each, ends](MonotonicTime now, SeededRandom& random) -> TimedAnswer {
    ends->erase(ends->begin(), ends->upper_bound(now));
    if (ends->size() >= most) return {503, milliseconds(2)};
    const TimedAnswer answer{200, Around(each, random)};
    ends->insert(now + answer.after);
    return answer;
  };
}

// Accepts this many a second, of a tenth of a second's more at once.
TimedBucket::Server TakesASecond(uint64_t most, milliseconds each) {
  const auto used_until = std::make_shared<MonotonicTime>(0);
  return [most, each, used_until](MonotonicTime now, SeededRandom& random) -> TimedAnswer {
    *used_until = std::max(*used_until, now);
    if (*used_until > now + milliseconds(100)) return {503, milliseconds(2)};
    *used_until += nanoseconds(seconds(1)) / most;
    return {200, Around(each, random)};
  };
}

// Returns the last pause after this many, each twice as long as the one before.
nanoseconds PauseAfter(uint64_t times, nanoseconds first, nanoseconds longest) {
  for (uint64_t i = 1; i < times && first < longest; ++i) first *= 2;
  return std::min(first, longest);
}

double Seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

struct FirstBytes {
  double p99 = 0, hedged = 0;  // seconds; a share
};
// Measures reads whose answers come after 20 ms, except one in fifty a second later.
FirstBytes ReadWithStragglers(uint64_t seed, const HedgeOptions& hedge) {
  TimedBucket b(seed, {.hedge = hedge}, [](MonotonicTime, SeededRandom& random) -> TimedAnswer {
    const nanoseconds late = random.Chance(0.02) ? seconds(1) : seconds(0);
    return {200, Around(milliseconds(20), random) + late};
  });
  b.WantSteadily(10'000, milliseconds(10));
  b.Advance(seconds(3));
  CHECK(b.well == b.wanted);
  std::sort(b.first_bytes.begin(), b.first_bytes.end());
  return {.p99 = Seconds(b.first_bytes.at(b.first_bytes.size() * 99 / 100)),
          .hedged = PartOf(b.store->counters().hedges, b.wanted)};
}

// Chunks of 2 MiB at a GB a second for all requests, in the order of arrival.
struct SharedLine {
  TimedBucket::Server ForOne() {
    return [this](MonotonicTime now, SeededRandom& random) -> TimedAnswer {
      free_at = std::max(free_at, now) + nanoseconds(2 * 1024 * 1024);
      return {200, free_at - now + Around(milliseconds(2), random)};
    };
  }
  MonotonicTime free_at{0};
};

// A node that fetches 64 chunks every second or so, as many at a time as the store reads at once.
class FetchingNode {
 public:
  FetchingNode(uint64_t seed, SharedLine* line)
      : bucket(seed, {}, line->ForOne()), random_(seed) {
    Fetch();
  }

  TimedBucket bucket;
  std::vector<double> fetches;  // seconds

 private:
  static constexpr int kChunks = 64, kAtOnce = 48;

  void Fetch() {
    begun_ = bucket.clock.Now();
    asked_ = came_ = 0;
    while (asked_ < kAtOnce) Ask();
  }
  void Ask() {
    ++asked_;
    bucket.Want([this] {
      if (asked_ < kChunks) Ask();
      if (++came_ < kChunks) return;
      fetches.push_back(Seconds(bucket.clock.Now() - begun_));
      bucket.engine->RunAt(bucket.clock.Now() + Around(seconds(1), random_), [this] { Fetch(); });
    });
  }

  SeededRandom random_;
  MonotonicTime begun_{0};
  int asked_ = 0, came_ = 0;
};

// Measures fifty fetches of each of two nodes; flood: beside a node that fetches all the time.
double FetchP99(uint64_t seed, bool flood) {
  SharedLine line;
  FetchingNode first(seed, &line), second(seed + 1, &line);
  TimedBucket third(seed + 2, {}, line.ForOne());
  if (flood) third.WantAllTheTime(160);
  while (first.fetches.size() < 50 || second.fetches.size() < 50) {
    for (TimedBucket* const bucket : {&first.bucket, &second.bucket, &third}) {
      bucket->Advance(milliseconds(1));
    }
  }
  CHECK((third.well > first.bucket.well + second.bucket.well) == flood);
  std::vector<double> all = first.fetches;
  all.insert(all.end(), second.fetches.begin(), second.fetches.end());
  std::sort(all.begin(), all.end());
  return all[all.size() * 99 / 100];
}

}  // namespace

TEST_CASE("a bucket that is down is hardly asked, and is used within two pauses once it is back") {
  const S3StoreOptions options;
  const TimedBucket::Server well = [](MonotonicTime, SeededRandom& random) -> TimedAnswer {
    return {200, Around(milliseconds(20), random)};
  };
  const auto [how, down] = GENERATE(table<const char*, TimedAnswer>({
      {"refuses connections", {0, milliseconds(1)}},
      {"500", {500, milliseconds(5)}},
      {"503", {503, milliseconds(5)}},
      {"is silent", {200, std::chrono::hours(1)}},
  }));
  const uint64_t seed = GENERATE(1, 2, 3);
  constexpr milliseconds kEach{50};
  CAPTURE(how, seed);
  TimedBucket b(seed, options, well);
  b.WantSteadily(200, kEach);
  REQUIRE(b.well > 190);
  b.Forget();
  b.server = [is = down](MonotonicTime, SeededRandom&) { return is; };
  b.WantSteadily(minutes(5) / kEach, kEach);
  CAPTURE(b.wanted, b.sent, PartOf(b.sent, b.wanted));
  CHECK(b.wanted == 6000);
  CHECK(b.well == 0);
  CHECK(PartOf(b.sent, b.wanted) <= 0.05);  // 1.1 is promised

  // 503 does not trip the breaker: the window holds everything back, by now as long as it ever
  // does.
  const uint64_t opened = b.store->counters().breaker_opened;
  CHECK((opened == 0) == (down.status == 503));
  const nanoseconds pause =
      opened == 0 ? options.window.longest_hold
                  : PauseAfter(opened, options.breaker.first_pause, options.breaker.longest_pause);
  b.server = well;
  b.Forget();
  const MonotonicTime back = b.clock.Now();
  while (b.well == 0 && b.clock.Now() < back + 2 * pause) b.WantSteadily(1, kEach);
  CAPTURE(Seconds(pause), Seconds(b.clock.Now() - back));
  CHECK(b.well > 0);
}

TEST_CASE("a bucket that asks for less is asked for hardly more than it takes", "[figures]") {
  struct Row {
    const char* takes;
    TimedBucket::Server server;
    double a_second;
  };
  // The first window is 16: 8 at a time turn half of it down.
  const std::vector<Row> rows{
      {"8 at a time, 20 ms each", TakesAtATime(8, milliseconds(20)), 400},
      {"40 at a time, 10 ms each", TakesAtATime(40, milliseconds(10)), 4000},
      {"40 at a time, 20 ms each", TakesAtATime(40, milliseconds(20)), 2000},
      {"40 at a time, 50 ms each", TakesAtATime(40, milliseconds(50)), 800},
      {"8 at a time, 100 ms each", TakesAtATime(8, milliseconds(100)), 80},
      {"40 at a time, 100 ms each", TakesAtATime(40, milliseconds(100)), 400},
      {"400 a second, 20 ms each", TakesASecond(400, milliseconds(20)), 400},
      {"1600 a second, 20 ms each", TakesASecond(1600, milliseconds(20)), 1600},
  };
  const uint64_t seed = GENERATE(1, 2);
  for (const Row& row : rows) {
    constexpr int kSeconds = 15;
    TimedBucket b(seed, {}, row.server);
    b.WantAllTheTime(160);
    b.Advance(seconds(5));
    b.Forget();
    b.Advance(seconds(kSeconds));
    const double used = static_cast<double>(b.taken) / kSeconds / row.a_second;
    CAPTURE(row.takes, seed, b.sent, b.taken, used, PartOf(b.sent, b.taken));
    CHECK(used >= 0.8);
    CHECK(PartOf(b.sent, b.taken) <= 1.3);
  }
}

TEST_CASE("one read in fifty is a second late: hedges are few, and p99 is a third at most") {
  const uint64_t seed = GENERATE(1, 2, 3);
  const FirstBytes with = ReadWithStragglers(seed, {});
  const FirstBytes without = ReadWithStragglers(seed, {.saved_hedges = 0});
  CAPTURE(seed, with.p99, without.p99, with.p99 / without.p99, with.hedged);
  CHECK(without.hedged == 0);
  CHECK(without.p99 >= 1);
  CHECK(with.hedged >= 0.01);
  CHECK(with.hedged <= 0.05);
  CHECK(with.p99 / without.p99 <= 0.3);
}

TEST_CASE("a node that reads all the time makes the others' fetches three times as long at most") {
  const uint64_t seed = GENERATE(1, 2, 3);
  const double alone = FetchP99(seed, false), beside = FetchP99(seed, true);
  CAPTURE(seed, alone, beside, beside / alone);
  CHECK(beside / alone > 1.2);  // otherwise it was no flood
  CHECK(beside / alone <= 3);
}

}  // namespace kvkeep
