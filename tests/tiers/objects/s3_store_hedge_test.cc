// Reads that are sent twice.
#include <catch2/catch.hpp>

#include "tests/tiers/objects/scripted_bucket.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;

}  // namespace

TEST_CASE("a read whose first byte is late is sent twice, and who is first is read alone") {
  ScriptedBucket b;
  const std::string text = LongText(3000);
  b.Put("n", text);
  for (int i = 0; i < 40; ++i) {
    TextObjectSink sink;
    CHECK(b.Get({.name = "n"}, &sink)->ok());
  }
  b.sent.clear();
  int number = 0;
  b.instead = [&](const HttpRequest&) -> std::optional<std::optional<ScriptedAnswer>> {
    if (number++ == 0) return std::optional<ScriptedAnswer>();  // it hangs
    return std::nullopt;
  };
  TextObjectSink sink;
  std::optional<ObjectAnswer> answer;
  b.store->Get({.name = "n"}, &sink, b.Into(&answer));
  b.Advance(milliseconds(9));
  CHECK(b.sent.size() == 1);
  b.Advance(milliseconds(1));
  CHECK(b.sent.size() == 2);
  REQUIRE(answer.has_value());
  CHECK(answer->ok());
  CHECK(sink.text == text);
  CHECK(b.engine->unanswered() == 0);
  CHECK(b.store->counters().hedges == 1);
  CHECK(b.store->counters().hedges_won == 1);
}

TEST_CASE("of two that are sent for one read one alone has the sink, in whatever order they come") {
  ScriptedBucket b;
  const std::string text = LongText(5000);
  b.Put("n", text);
  for (int i = 0; i < 40; ++i) {
    TextObjectSink sink;
    CHECK(b.Get({.name = "n"}, &sink)->ok());
  }
  uint64_t second_won = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    SeededRandom order(seed);
    // The first one's answer may break off, or belong to another version.
    int number = 0;
    b.instead = [&](const HttpRequest& request) -> std::optional<std::optional<ScriptedAnswer>> {
      ScriptedAnswer answer = b.server.Serve(request, "");
      if (number++ == 0 && order.Chance(0.3)) answer.cut_at = order.Below(5000);
      return answer;
    };
    TextObjectSink sink;
    std::optional<ObjectAnswer> answer;
    b.store->Get({.name = "n"}, &sink, b.Into(&answer));
    b.executor.RunOne();  // taken, and handed to the engine, which has not begun
    b.clock.Advance(milliseconds(20));
    b.engine->RunDue();
    while (!b.executor.idle()) b.executor.RunOne(order.Below(b.executor.size()));
    b.RunTo(answer);
    REQUIRE(answer.has_value());
    CHECK(answer->ok());
    CHECK(sink.text == text);
    CHECK(sink.begins == 1);
    CHECK(b.engine->unanswered() == 0);
    second_won = b.store->counters().hedges_won;
    for (int i = 0; i < 20; ++i) {  // pays for the next one
      b.instead = nullptr;
      TextObjectSink more;
      b.Get({.name = "n"}, &more);
    }
  }
  CHECK(b.store->counters().hedges > 150);
  CHECK(second_won > 20);
  CHECK(second_won < 180);
}

}  // namespace kvkeep
