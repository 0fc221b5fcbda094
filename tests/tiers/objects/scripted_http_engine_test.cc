#include "tests/fakes/scripted_http_engine.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

#include "tests/fakes/manual_clock.h"
#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

struct CountingSink final : HttpSink {
  absl::Status Begin(const HttpHead&) override { return absl::OkStatus(); }
  absl::Status Take(std::span<const std::byte> bytes) override {
    absl::StrAppend(&text, AsText(bytes));
    return text.size() > most ? absl::AbortedError("enough") : absl::OkStatus();
  }
  std::string text;
  size_t most = 1000;
};

}  // namespace

TEST_CASE("the scripted engine answers as the real one: once, later, in order, or not at all") {
  ManualExecutor executor;
  ScriptedHttpEngine engine(
      &executor,
      [](const HttpRequest& request, std::string body) -> std::optional<ScriptedAnswer> {
        if (request.url == "hangs") return std::nullopt;
        if (request.url == "missing") return ScriptedAnswer{.status = 404, .body = "<Error/>"};
        if (request.url == "cut") return ScriptedAnswer{.body = "0123456789", .cut_at = 5};
        if (request.url == "down") {
          return ScriptedAnswer{.status = 0, .fails = absl::UnavailableError("down")};
        }
        return ScriptedAnswer{.headers = {{"ETag", "e"}}, .body = absl::StrCat("got ", body)};
      },
      3);
  const std::string sent = "some body";
  std::vector<HttpAnswer> answers;
  std::vector<CountingSink> sinks(6);
  sinks[5].most = 4;
  const auto start = [&](const char* url, size_t sink) {
    return engine.Start({.url = url, .body = {AsBytes(sent)}, .sink = &sinks[sink]},
                        [&](HttpAnswer answer) { answers.push_back(std::move(answer)); });
  };
  start("good", 0);
  CHECK(answers.empty());
  executor.RunAll();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].status.ok());
  CHECK(sinks[0].text == "got some body");
  const HttpCall hangs = start("hangs", 1);
  for (const char* url : {"missing", "cut", "down"}) {
    start(url, 2);
    executor.RunAll();
  }
  REQUIRE(answers.size() == 4);
  CHECK(answers[1].head.status == 404);
  CHECK(answers[1].text == "<Error/>");
  CHECK(absl::IsUnavailable(answers[2].status));
  CHECK(sinks[2].text == "01234");
  CHECK(absl::IsUnavailable(answers[3].status));
  CHECK_FALSE(answers[3].connected);
  start("good", 5);
  executor.RunAll();
  CHECK(absl::IsAborted(answers[4].status));
  CHECK(engine.unanswered() == 1);
  engine.Cancel(hangs);
  engine.Cancel(hangs);
  CHECK(answers.size() == 5);
  executor.RunAll();
  REQUIRE(answers.size() == 6);
  CHECK(absl::IsCancelled(answers[5].status));
  CHECK(engine.unanswered() == 0);
}

TEST_CASE("the scripted engine runs tasks at their times, and ends what is late, when it is told") {
  ManualExecutor executor;
  ManualClock clock;
  std::vector<int> ran;
  std::vector<absl::StatusCode> ends;
  auto engine = std::make_unique<ScriptedHttpEngine>(
      &executor,
      [](const HttpRequest&, std::string) { return std::optional<ScriptedAnswer>(); }, 10, &clock);
  const auto done = [&](HttpAnswer answer) { ends.push_back(answer.status.code()); };
  engine->Start({.url = "hangs", .deadline = std::chrono::seconds(2)}, done);
  engine->Start({.url = "hangs"}, done);
  engine->RunAt(std::chrono::seconds(3), [&] { ran.push_back(3); });
  engine->RunAt(std::chrono::seconds(1), [&] { ran.push_back(1); });
  engine->RunAt(MonotonicTime(0), [&] { ran.push_back(0); });
  CHECK(ran.empty());
  executor.RunAll();
  CHECK(ran == std::vector<int>{0});
  CHECK(engine->next() == std::chrono::seconds(1));
  clock.Advance(std::chrono::seconds(2));
  engine->RunDue();
  executor.RunAll();
  CHECK(ran == std::vector<int>{0, 1});
  CHECK(ends == std::vector{absl::StatusCode::kDeadlineExceeded});
  engine.reset();
  CHECK(ends.size() == 2);
  executor.RunAll();
  CHECK(ran.size() == 2);
}

}  // namespace kvkeep
