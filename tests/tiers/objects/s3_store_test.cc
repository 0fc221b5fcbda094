#include "tiers/objects/s3_store.h"

#include <catch2/catch.hpp>

#include "tests/tiers/objects/scripted_bucket.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Outcome = ObjectOutcome;
using Health = ObjectStoreHealth::State;

ScriptedAnswer Reset() {
  return {.status = 0, .fails = absl::UnavailableError("reset")};
}

}  // namespace

TEST_CASE("what is put is read back, whole and in ranges, and is absent once it is deleted") {
  ScriptedBucket b;
  CHECK(b.Put("1/a b+c", "0123456789")->ok());
  TextObjectSink whole, part;
  const auto read = b.Get({.name = "1/a b+c"}, &whole);
  CHECK(read->ok());
  CHECK(whole.text == "0123456789");
  CHECK(whole.head.object_bytes == 10);
  CHECK(read->head.etag == "\"v1\"");
  CHECK(b.Get({.name = "1/a b+c", .range = ByteRange{4, 100}}, &part)->ok());
  CHECK(part.text == "456789");
  CHECK(part.head.object_bytes == 10);
  std::optional<ObjectAnswer> deleted;
  b.store->Delete({.name = "1/a b+c"}, b.Into(&deleted));
  CHECK_FALSE(deleted.has_value());  // never inside the call
  b.Settle();
  CHECK(deleted->ok());
  TextObjectSink none;
  CHECK(b.Get({.name = "1/a b+c"}, &none)->outcome == Outcome::kAbsent);
  CHECK(none.begins == 0);
  CHECK(b.store->counters().answers[0][static_cast<size_t>(Outcome::kAbsent)] == 1);
  CHECK(b.store->health().readable());
}

TEST_CASE("a list comes by pages, its names without the bucket's prefix") {
  ScriptedBucket b;
  b.server.page = 2;
  for (const char* name : {"1/a", "1/b", "1/c", "2/d"}) CHECK(b.Put(name, "x")->ok());
  std::vector<std::string> names;
  std::string token;
  int pages = 0;
  do {
    std::optional<ObjectListing> page;
    b.store->List({.prefix = "1/", .token = token}, [&](ObjectAnswer answer, ObjectListing told) {
      CHECK(answer.ok());
      page = std::move(told);
    });
    b.Settle();
    REQUIRE(page.has_value());
    for (const ListedObject& object : page->objects) names.push_back(object.name);
    token = page->next_token;
    ++pages;
  } while (!token.empty());
  CHECK(names == std::vector<std::string>{"1/a", "1/b", "1/c"});
  CHECK(pages == 2);
}

TEST_CASE("a list that is no list is broken, and its page empty") {
  ScriptedBucket b;
  b.instead = FirstMeet(1, {.body = "<html>"});
  bool told = false;
  b.store->List({}, [&](ObjectAnswer answer, ObjectListing page) {
    told = true;
    CHECK(answer.outcome == Outcome::kBroken);
    CHECK(page == ObjectListing{});
  });
  b.Settle();
  CHECK(told);
}

TEST_CASE("a connection that breaks is tried again, three times in all") {
  ScriptedBucket b;
  b.Put("n", "hello");
  b.sent.clear();
  const size_t times = GENERATE(1, 2, 5);
  b.instead = FirstMeet(times, S3Error(500, "InternalError"));
  TextObjectSink sink;
  const auto answer = b.Get({.name = "n"}, &sink);
  CHECK(answer->ok() == (times <= 2));
  CHECK(b.sent.size() == std::min<size_t>(times + 1, 3));
  CHECK(answer->attempts == b.sent.size());
  CHECK(sink.text == (times <= 2 ? "hello" : ""));
  CHECK(b.store->counters().retries == b.sent.size() - 1);
}

TEST_CASE("no request is sent again beyond its deadline, and one that hangs ends at it") {
  ScriptedBucket b;
  TextObjectSink sink;
  std::optional<ObjectAnswer> answer;
  SECTION("an answer that would be tried again") {
    b.instead = FirstMeet(100, Reset());
    b.store->Get({.name = "n", .deadline = b.In(milliseconds(5))}, &sink, b.Into(&answer));
    b.Settle();
    CHECK(answer->outcome == Outcome::kBroken);
    CHECK(answer->attempts == 1);
  }
  SECTION("none") {
    b.instead = [](const HttpRequest&) { return std::optional(std::optional<ScriptedAnswer>()); };
    b.store->Get({.name = "n", .deadline = b.In(milliseconds(50))}, &sink, b.Into(&answer));
    b.Advance(milliseconds(49));
    CHECK_FALSE(answer.has_value());
    b.Advance(milliseconds(1));
    CHECK(answer->outcome == Outcome::kLate);
    // No request waited long enough for the wait to say something of the server.
    CHECK(b.store->health().state == Health::kWell);
  }
  SECTION("nor a turn") {
    b.instead = FirstMeet(1, {.status = 503, .headers = {{"Retry-After", "30"}}});
    b.store->Get({.name = "n", .deadline = b.In(seconds(2))}, &sink, b.Into(&answer));
    b.Settle();  // at once: a turn would come in 30 seconds
    REQUIRE(answer.has_value());
    CHECK(answer->outcome == Outcome::kThrottled);
    CHECK(b.sent.size() == 1);
  }
  SECTION("which is a minute for who sets none") {
    b.instead = [](const HttpRequest&) { return std::optional(std::optional<ScriptedAnswer>()); };
    CHECK(b.Get({.name = "n"}, &sink)->outcome == Outcome::kLate);
  }
}

TEST_CASE("a body that breaks off is gone on with where it was, of the same version") {
  ScriptedBucket b;
  const std::string text = LongText(10'000);
  b.Put("n", text);
  b.sent.clear();
  bool cut = false, replace = false, tells_version = true;
  b.instead = [&](const HttpRequest& request) -> std::optional<std::optional<ScriptedAnswer>> {
    if (std::exchange(cut, true)) return std::nullopt;
    ScriptedAnswer answer = b.server.Serve(request, "");
    if (replace) b.server.Change("kv/n", LongText(10'001));
    if (!tells_version) answer.headers.erase(answer.headers.begin() + 1);
    answer.cut_at = 4500;
    return answer;
  };
  TextObjectSink sink;
  SECTION("from its middle") {
    const auto answer = b.Get({.name = "n", .range = ByteRange{100, 9000}}, &sink);
    CHECK(answer->ok());
    CHECK(sink.text == text.substr(100, 9000));
    CHECK(FindHeader(b.sent[1].headers, "range") == "bytes=4600-9099");
    CHECK(FindHeader(b.sent[1].headers, "if-match") == "\"v1\"");
    CHECK(b.store->counters().resumed_reads == 1);
  }
  SECTION("also when nobody said where it ends") {
    CHECK(b.Get({.name = "n"}, &sink)->ok());
    CHECK(sink.text == text);
  }
  SECTION("unless it has changed") {
    replace = true;
    CHECK(b.Get({.name = "n"}, &sink)->outcome == Outcome::kChanged);
    CHECK(sink.text == text.substr(0, 4500));
  }
  SECTION("and the server ignores what it was asked") {
    replace = b.server.ignores_conditions = true;
    CHECK(b.Get({.name = "n"}, &sink)->outcome == Outcome::kChanged);
    CHECK(sink.text == text.substr(0, 4500));
  }
  SECTION("or nobody can tell") {
    tells_version = false;
    CHECK(b.Get({.name = "n"}, &sink)->outcome == Outcome::kBroken);
    CHECK(b.sent.size() == 1);
  }
  CHECK(sink.begins == 1);
}

TEST_CASE("bytes beyond the range are never handed on, and those of another range neither") {
  ScriptedBucket b;
  b.server.ignores_ranges = true;
  const std::string text = LongText(10'000);
  b.Put("n", text);
  TextObjectSink first, middle;
  CHECK(b.Get({.name = "n", .range = ByteRange{0, 4096}}, &first)->ok());
  CHECK(first.text == text.substr(0, 4096));
  CHECK(first.head.object_bytes == 10'000);
  const auto answer = b.Get({.name = "n", .range = ByteRange{1, 10}}, &middle);
  CHECK(answer->outcome == Outcome::kBroken);
  CHECK(answer->error.code == "OtherRange");
  CHECK(middle.begins == 0);
}

TEST_CASE("a sink that refuses ends the read, and says nothing against the server") {
  ScriptedBucket b;
  b.Put("n", LongText(10'000));
  for (int i = 0; i < 20; ++i) {
    TextObjectSink sink;
    sink.most = 1500;
    const auto answer = b.Get({.name = "n"}, &sink);
    CHECK(answer->outcome == Outcome::kCancelled);
    CHECK(answer->error.message == "enough");
    CHECK(answer->attempts == 1);
    CHECK(answer->given == 2000);
  }
  CHECK(b.store->health().state == Health::kWell);
}

TEST_CASE("a request that is cancelled is answered once, wherever it is") {
  ScriptedBucket b;
  b.Put("n", LongText(10'000));
  for (size_t steps = 0; steps < 40; ++steps) {
    TextObjectSink sink;
    std::optional<ObjectAnswer> answer;
    b.instead = FirstMeet(steps % 3 == 2 ? 1 : 0, Reset());
    const ObjectCall call = b.store->Get({.name = "n"}, &sink, b.Into(&answer));
    for (size_t i = 0; i < steps && !b.executor.idle(); ++i) b.executor.RunOne();
    b.store->Cancel(call);
    b.store->Cancel(call);
    b.Settle();
    CAPTURE(steps);
    REQUIRE(answer.has_value());
    CHECK((answer->ok() || answer->outcome == Outcome::kCancelled));
    CHECK(answer->given == sink.text.size());
  }
  CHECK(b.engine->unanswered() == 0);
}

TEST_CASE("who asks for less is given less: fewer go at a time, and then all wait") {
  ScriptedBucket b;
  b.Put("n", "hello");
  b.instead = FirstMeet(3, S3Error(503, "SlowDown"));
  std::vector<TextObjectSink> sinks(16);
  std::vector<std::optional<ObjectAnswer>> answers(16);
  for (size_t i = 0; i < 16; ++i) {
    b.store->Get({.name = "n"}, &sinks[i], b.Into(&answers[i]));
  }
  b.Settle();
  const size_t at_once = b.sent.size() - 1;
  CHECK(at_once == 16);
  CHECK(b.store->counters().window == 11);
  TextObjectSink refused, late;
  std::optional<ObjectAnswer> again, held;
  b.instead = FirstMeet(1, S3Error(503, "SlowDown"));
  b.store->Get({.name = "n"}, &refused, b.Into(&again));
  b.Settle();
  CHECK(b.store->counters().window == 7);
  b.store->Get({.name = "n"}, &late, b.Into(&held));
  b.Advance(milliseconds(70));
  CHECK_FALSE(held.has_value());
  b.Advance(milliseconds(40));
  CHECK(held->ok());
  CHECK(std::all_of(answers.begin(), answers.end(),
                    [](const auto& answer) { return answer->ok(); }));
  CHECK(b.store->counters().throttled == 4);
  CHECK(b.store->health().readable());
}

TEST_CASE("who could only wait out its deadline while all are held is refused at once") {
  ScriptedBucket b;
  b.Put("n", "hello");
  std::vector<TextObjectSink> sinks(41);
  std::vector<std::optional<ObjectAnswer>> answers(41);
  const auto get = [&](size_t i, MonotonicTime deadline) {
    b.store->Get({.name = "n", .deadline = deadline}, &sinks[i], b.Into(&answers[i]));
  };
  // The first shrinks the window, the second holds it: requests that wait for their turn meanwhile
  // are checked once more.
  b.instead = FirstMeet(1, S3Error(503, "SlowDown"));
  get(0, b.clock.Now() + seconds(10));
  b.Settle();
  b.instead = FirstMeet(1, S3Error(503, "SlowDown"));
  const MonotonicTime begun = b.clock.Now();
  for (size_t i = 1; i < 40; ++i) {
    get(i, begun + (i % 2 == 0 ? milliseconds(20) : milliseconds(10'000)));
  }
  b.Settle();
  get(40, begun + milliseconds(20));
  b.Settle();
  CHECK(b.clock.Now() == begun);
  size_t refused = 0;
  for (size_t i = 1; i < 40; ++i) {
    if (!answers[i].has_value() || answers[i]->ok()) continue;
    ++refused;
    CHECK(i % 2 == 0);
    CHECK(answers[i]->outcome == Outcome::kThrottled);
  }
  CHECK(refused > 0);
  REQUIRE(answers[40].has_value());
  CHECK(answers[40]->outcome == Outcome::kThrottled);
  CHECK(b.store->counters().not_asked == refused + 1);
  std::optional<ObjectAnswer> put;  // the next one would follow at once
  b.store->Put({.name = "w", .body = {AsBytes("hello")}, .deadline = begun + milliseconds(20)},
               b.Into(&put));
  b.Settle();
  CHECK_FALSE(put.has_value());
  b.Advance(seconds(3));
  for (size_t i = 1; i < 40; i += 2) CHECK((answers[i].has_value() && answers[i]->ok()));
}

TEST_CASE("more than may wait are refused at once, and counted") {
  ScriptedBucket b({.max_waiting = 3});
  b.instead = [](const HttpRequest&) { return std::optional(std::optional<ScriptedAnswer>()); };
  std::vector<TextObjectSink> sinks(20);
  std::vector<std::optional<ObjectAnswer>> answers(20);
  for (size_t i = 0; i < 20; ++i) {
    b.store->Get({.name = "n"}, &sinks[i], b.Into(&answers[i]));
  }
  b.Settle();
  CHECK(b.sent.size() == 16);
  REQUIRE(answers[19].has_value());
  CHECK(answers[19]->outcome == Outcome::kThrottled);
  CHECK_FALSE(answers[18].has_value());
  CHECK(b.store->counters().not_asked == 1);
  b.store.reset();
  CHECK(answers[18]->outcome == Outcome::kCancelled);
}

TEST_CASE("keys that have expired are renewed once, and the request sent again with the new ones") {
  ScriptedBucket b;
  b.Put("n", "hello");
  TextObjectSink sink;
  SECTION("newer ones are there") {
    b.server.set_keys(
        std::make_shared<const S3Keys>(S3Keys{"ID", SecretText("newer"), "", {}}));
    SECTION("and it tells that these have expired") {
      b.instead = FirstMeet(1, S3Error(400, "ExpiredToken"));
    }
    SECTION("and it knows these no longer") {
      b.instead = FirstMeet(1, S3Error(403, "InvalidAccessKeyId"));
    }
    *b.secret = "newer";
    CHECK(b.Get({.name = "n"}, &sink)->ok());
    CHECK(sink.text == "hello");
    CHECK(b.store->counters().renewed == 1);
  }
  SECTION("none are: it says so, and asks no more") {
    b.server.set_expired(true);
    b.sent.clear();
    CHECK(b.Get({.name = "n"}, &sink)->outcome == Outcome::kDenied);
    CHECK(b.sent.size() == 1);
    TextObjectSink second;
    CHECK(b.Get({.name = "n"}, &second)->outcome == Outcome::kDenied);
    CHECK(b.store->health().error.code == "ExpiredToken");
    CHECK_FALSE(b.store->health().what_to_do.empty());
  }
}

TEST_CASE("without keys nobody is asked") {
  ScriptedBucket b;
  b.store.reset();
  b.secret->clear();
  S3Credentials none(std::make_unique<SetKeySource>(b.secret), &b.clock, &b.random);
  none.Tick();
  auto engine = std::make_unique<ScriptedHttpEngine>(
      &b.executor, [](const HttpRequest&, std::string) { return ScriptedAnswer{}; }, 1000,
      &b.clock);
  S3Store store(S3Urls::Make({.endpoints = {"http://h"}, .bucket = "bucket"}).value(), {},
                std::move(engine), &none, &b.clock, &b.random);
  TextObjectSink sink;
  std::optional<ObjectAnswer> answer;
  store.Get({.name = "n"}, &sink, b.Into(&answer));
  b.Settle();
  CHECK(answer->outcome == Outcome::kDenied);
  CHECK(answer->attempts == 0);
  CHECK(store.health().state == Health::kMisconfigured);
  CHECK(store.health().error.code == "NoCredentials");
}

TEST_CASE("a clock that is wrong is set by the server's, once a request") {
  ScriptedBucket b({}, {"https://h:9000"});
  b.server.clock_ahead = seconds(-1200);
  CHECK(b.Put("n", "hello")->ok());
  CHECK(b.store->counters().clock_set == 1);
  CHECK(b.store->counters().clock_skew_seconds == -1200);
  TextObjectSink sink;
  CHECK(b.Get({.name = "n"}, &sink)->attempts == 1);
  b.instead = FirstMeet(2, {.status = 403,
                            .headers = {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}},
                            .body = "<Error><Code>RequestTimeTooSkewed</Code></Error>"});
  TextObjectSink other;
  CHECK(b.Get({.name = "n"}, &other)->outcome == Outcome::kSkewed);
  CHECK(b.store->health().state != Health::kWell);
}

TEST_CASE("without TLS, or more than a day away, a server's time is not believed") {
  for (const char* endpoint : {"http://h:9000", "https://h:9000"}) {
    for (const int64_t ahead : {1'200L, -1'200L, 86'400L, 86'500L, -86'500L, 252'000'000'000L}) {
      CAPTURE(endpoint, ahead);
      ScriptedBucket b({}, {endpoint});
      b.server.clock_ahead = seconds(ahead);
      const bool believed = endpoint[4] == 's' && std::abs(ahead) <= 86'400;
      CHECK(b.Put("n", "hello")->outcome == (believed ? Outcome::kOk : Outcome::kSkewed));
      CHECK(b.store->counters().clock_set == (believed ? 1 : 0));
      if (!believed) CHECK(b.store->health().error.code == "RequestTimeTooSkewed");
    }
  }
}

TEST_CASE("a server that knows no conditions is put to without them from then on") {
  ScriptedBucket b;
  b.server.knows_conditions = false;
  CHECK(b.Put("n", "hello", true)->ok());
  CHECK(b.sent.size() == 2);
  CHECK(b.Put("n", "again", true)->ok());
  CHECK(b.sent.size() == 3);
  CHECK(b.server.objects().at("kv/n").body == "again");
}

TEST_CASE("what is there is not put again where that can be told") {
  ScriptedBucket b;
  CHECK(b.Put("n", "hello", true)->outcome == Outcome::kOk);
  CHECK(b.Put("n", "again", true)->outcome == Outcome::kExists);
  CHECK(b.Put("n", "third")->outcome == Outcome::kOk);
  CHECK(b.server.objects().at("kv/n").body == "third");
}

TEST_CASE("a full server is put nothing for a while, and read") {
  ScriptedBucket b;
  b.Put("n", "hello");
  b.instead = FirstMeet(1, S3Error(507, "XMinioStorageFull"));
  std::optional<ObjectAnswer> answer, second;
  b.store->Put({.name = "m"}, b.Into(&answer));
  b.Settle();
  CHECK(answer->outcome == Outcome::kFull);
  b.store->Put({.name = "m"}, b.Into(&second));
  b.Settle();
  CHECK(second->outcome == Outcome::kFull);
  CHECK(second->attempts == 0);
  CHECK_FALSE(b.store->health().writable());
  TextObjectSink sink;
  CHECK(b.Get({.name = "n"}, &sink)->ok());
  b.Advance(seconds(60));
  CHECK(b.Put("m", "there is room again")->ok());
}

TEST_CASE("a server that is down is asked no more, and again after its pause") {
  ScriptedBucket b;
  b.Put("n", "hello");
  b.instead = FirstMeet(1000, Reset());
  for (int i = 0; i < 50; ++i) {
    TextObjectSink sink;
    std::optional<ObjectAnswer> answer;
    b.store->Get({.name = "n"}, &sink, b.Into(&answer));
    b.Advance(milliseconds(100));
    REQUIRE(answer.has_value());
    CHECK(answer->outcome == Outcome::kBroken);
  }
  CHECK(b.sent.size() <= 10);
  CHECK(b.store->counters().breaker_opened >= 1);
  CHECK(b.store->counters().not_asked >= 40);
  b.instead = nullptr;
  b.Advance(seconds(20));
  TextObjectSink sink;
  CHECK(b.Get({.name = "n"}, &sink)->ok());
  CHECK(b.store->health().readable());
}

TEST_CASE("another endpoint is asked while the first one is down") {
  ScriptedBucket b({}, {"http://one:9000", "http://two:9000"});
  b.Put("n", "hello");
  const std::string used = b.sent.back().url.substr(0, 10);
  b.instead = [&](const HttpRequest& request) -> std::optional<std::optional<ScriptedAnswer>> {
    if (request.url.substr(0, 10) != used) return std::nullopt;
    return Reset();
  };
  int well = 0;
  for (int i = 0; i < 10; ++i) {
    TextObjectSink sink;
    well += b.Get({.name = "n"}, &sink)->ok();
  }
  CHECK(well >= 9);
}

TEST_CASE("late answers count against a server when they were waited for, and open its breaker") {
  ScriptedBucket b;
  b.Put("n", LongText(10'000));
  // Without any answer it was waited for from 500 ms on, for the end of a body from a second on.
  const auto [begins, patience, well] = GENERATE(
      std::tuple(false, milliseconds(50), true), std::tuple(false, milliseconds(600), false),
      std::tuple(false, milliseconds(1500), false), std::tuple(true, milliseconds(600), true),
      std::tuple(true, milliseconds(1500), false));
  b.instead = [&b, begins = begins](const HttpRequest& request) {
    std::optional<ScriptedAnswer> answer;
    if (begins) {
      answer = b.server.Serve(request, "");
      answer->cut_at = 4500;
      answer->hangs = true;
    }
    return std::optional(answer);
  };
  std::vector<TextObjectSink> sinks(12);
  std::vector<std::optional<ObjectAnswer>> answers(12);
  for (size_t i = 0; i < 12; ++i) {
    b.store->Get({.name = "n", .deadline = b.In(patience)}, &sinks[i], b.Into(&answers[i]));
  }
  b.Advance(patience);
  CHECK(answers[11]->outcome == Outcome::kLate);
  CHECK(b.store->health().readable() == well);
}

TEST_CASE("what is on its way when the store goes is answered, once each") {
  std::vector<TextObjectSink> sinks(40);
  std::vector<std::optional<ObjectAnswer>> answers(40);
  bool again = false;
  {
    ScriptedBucket b;
    b.instead = [](const HttpRequest& request) -> std::optional<std::optional<ScriptedAnswer>> {
      if (request.method == "PUT") return Reset();
      return std::optional<ScriptedAnswer>();
    };
    std::optional<ObjectAnswer> put, chained;
    b.store->Put({.name = "m"}, b.Into(&put));  // waits to be sent again
    b.Settle();
    for (size_t i = 0; i < 30; ++i) {
      b.store->Get({.name = "n"}, &sinks[i], [&, i, done = b.Into(&answers[i])](
                                                 ObjectAnswer told) mutable {
        if (i == 0) {  // a caller that gets it may ask again
          b.store->Get({.name = "n"}, &sinks[39], [&](ObjectAnswer answer) {
            again = answer.outcome == Outcome::kCancelled;
          });
        }
        std::move(done)(std::move(told));
      });
    }
    b.Settle();
    for (size_t i = 30; i < 39; ++i) b.store->Get({.name = "n"}, &sinks[i], b.Into(&answers[i]));
    CHECK_FALSE(answers[0].has_value());
    S3Store* const store = b.store.get();
    delete store;
    static_cast<void>(b.store.release());
    CHECK(put->outcome == Outcome::kCancelled);
  }
  for (size_t i = 0; i < 39; ++i) {
    CAPTURE(i);
    REQUIRE(answers[i].has_value());
    CHECK(answers[i]->outcome == Outcome::kCancelled);
  }
  CHECK(again);
}

}  // namespace kvkeep
