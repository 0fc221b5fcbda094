#include "tiers/objects/curl_engine.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>

#include "tests/fakes/scoped_variable.h"
#include "tests/fakes/scripted_server.h"
#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct TextSink final : HttpSink {
  absl::Status Begin(const HttpHead& begun) override {
    head = begun;
    ++begins;
    return begin_status;
  }
  absl::Status Take(std::span<const std::byte> bytes) override {
    absl::StrAppend(&text, AsText(bytes));
    return take_status;
  }
  HttpHead head;
  std::string text;
  int begins = 0;
  absl::Status begin_status, take_status;
};

// Answers of several calls, and a wait for them.
class Answers {
 public:
  HttpEngine::Done Next() {
    MutexLock lock(&mu_);
    const size_t number = answers_.size();
    answers_.emplace_back();
    return [this, number](HttpAnswer answer) {
      MutexLock inner(&mu_);
      KVKEEP_CHECK(!answers_[number].has_value());
      answers_[number] = std::move(answer);
      changed_.NotifyAll();
    };
  }
  HttpAnswer Await(size_t number = 0) {
    MutexLock lock(&mu_);
    while (!answers_[number].has_value()) changed_.Wait(&mu_);
    return *answers_[number];
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::deque<std::optional<HttpAnswer>> answers_ ABSL_GUARDED_BY(mu_);
};

class Latch {
 public:
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Await() {
    MutexLock lock(&mu_);
    while (!open_) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

// Shorter timeouts than a daemon's, for a server that hangs for ever.
CurlEngineOptions QuickOptions() {
  CurlEngineOptions options;
  options.slow_for = milliseconds(200);
  return options;
}

std::unique_ptr<CurlEngine> MakeEngine(const CurlEngineOptions& options = {}) {
  return CurlEngine::Make(options, RealClock()).value();
}

// One GET of a server with this script.
HttpAnswer GetFrom(const ScriptedServer::Script& script, TextSink* sink,
                   const std::function<void(HttpRequest&)>& change = nullptr,
                   const CurlEngineOptions& options = {}) {
  ScriptedServer server(script);
  Answers answers;
  const auto engine = MakeEngine(options);
  HttpRequest request{.url = server.url(), .sink = sink};
  request.deadline = RealClock()->Now() + seconds(60);
  if (change) change(request);
  engine->Start(std::move(request), answers.Next());
  return answers.Await();
}

ScriptedServer::Script Answering(const std::string& text) {
  return [text](ServedConnection& connection, int) {
    if (!connection.ReadHead().empty()) connection.Send(text);
  };
}

}  // namespace

TEST_CASE("a request is sent as it is, and its answer comes with head, body and times") {
  std::string seen;
  TextSink sink;
  const HttpAnswer answer = GetFrom(
      [&](ServedConnection& connection, int) {
        seen = connection.ReadHead();
        connection.Send("HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nETag:  \"e\" \r\n"
                        "x-Empty:\r\n\r\nhello");
        connection.AwaitClose();
      },
      &sink, [](HttpRequest& request) {
        request.url = absl::StrCat(request.url.substr(0, request.url.find("/b/k")),
                                   "/b//../%41?x=%20&y=");
        request.headers = {{"Range", "bytes=0-4"}, {"x-none", ""}};
      });
  INFO(answer.status);
  REQUIRE(answer.status.ok());
  CHECK(answer.head.status == 206);
  CHECK(answer.head.content_bytes == 5);
  CHECK(FindHeader(answer.head.headers, "etag") == "\"e\"");
  CHECK(sink.text == "hello");
  CHECK(sink.begins == 1);
  CHECK(answer.body_bytes == 5);
  CHECK(answer.connected);
  CHECK(answer.first_byte.count() > 0);
  CHECK(answer.total >= answer.first_byte);
  CHECK(absl::StartsWith(seen, "GET /b//../%41?x=%20&y= HTTP/1.1\r\nHost: 127.0.0.1:"));
  CHECK(absl::StrContains(seen, "\r\nRange: bytes=0-4\r\n"));
  CHECK(absl::StrContains(seen, "\r\nx-none:\r\n"));
  CHECK_FALSE(absl::StrContains(seen, "Accept"));
}

TEST_CASE("the body of an error is kept apart from the sink, and cut") {
  TextSink sink;
  const HttpAnswer small = GetFrom(
      Answering("HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\n<Error/>"), &sink);
  CHECK(small.status.ok());
  CHECK(small.head.status == 404);
  CHECK(small.text == "<Error/>");
  const HttpAnswer large = GetFrom(
      Answering(absl::StrCat("HTTP/1.1 500 x\r\nContent-Length: 100000\r\n\r\n",
                             std::string(100'000, 'e'))), &sink);
  CHECK(large.status.ok());
  CHECK(large.text.size() == 64 * kKiB);
  const HttpAnswer endless = GetFrom([](ServedConnection& connection, int) {
    connection.ReadHead();
    connection.Send("HTTP/1.1 500 x\r\n\r\n");
    connection.Drip(std::string(100'000, 'e'), 0);
  }, &sink);
  CHECK(absl::IsResourceExhausted(endless.status));
  CHECK(sink.begins == 0);
}

TEST_CASE("a body that is cut short, too long, or has no end is no whole one") {
  TextSink cut;
  CHECK(absl::IsUnavailable(
      GetFrom(Answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"), &cut).status));
  CHECK(cut.text == "hello");
  TextSink chunks;
  CHECK(absl::IsUnavailable(
      GetFrom(Answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
              &chunks).status));
  TextSink bad_chunks;
  CHECK_FALSE(GetFrom(Answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello"),
                      &bad_chunks).status.ok());
  TextSink longer;  // bytes beyond the length belong to no answer
  CHECK(GetFrom(Answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more"), &longer)
            .status.ok());
  CHECK(longer.text == "hello");
  TextSink endless;
  const HttpAnswer answer = GetFrom(
      [](ServedConnection& connection, int) {
        connection.ReadHead();
        connection.Send("HTTP/1.1 200 OK\r\n\r\n");
        connection.Drip(std::string(100'000, 'x'), 0);
      },
      &endless, [](HttpRequest& request) { request.max_body_bytes = 1'000'000; });
  CHECK(absl::IsResourceExhausted(answer.status));
  CHECK(endless.text.size() <= 1'000'000);
}

TEST_CASE("what is no HTTP, a head without end, a reset and a redirect end as what they are") {
  TextSink sink;
  CHECK(absl::IsDataLoss(GetFrom(Answering("SSH-2.0-OpenSSH_9.2\r\n"), &sink).status));
  CHECK_FALSE(GetFrom(Answering("HTTP/1.1 999999 x\r\n\r\n"), &sink).status.ok());
  CHECK(absl::IsDataLoss(GetFrom(Answering("HTTP/1.1 600 x\r\n\r\n"), &sink).status));
  CHECK(absl::IsResourceExhausted(GetFrom([](ServedConnection& connection, int) {
                                    connection.ReadHead();
                                    connection.Send("HTTP/1.1 200 OK\r\n");
                                    connection.Drip("x-more: " + std::string(1000, 'h') + "\r\n",
                                                    0);
                                  }, &sink).status));
  const HttpAnswer reset = GetFrom([](ServedConnection& connection, int) {
    connection.ReadHead();
    connection.Reset();
  }, &sink);
  CHECK(absl::IsUnavailable(reset.status));
  CHECK(reset.connected);
  CHECK(absl::IsUnavailable(GetFrom([](ServedConnection& connection, int) {
                              connection.ReadHead();
                            }, &sink).status));
  const HttpAnswer redirect = GetFrom(
      Answering("HTTP/1.1 301 x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
      &sink);
  CHECK(redirect.status.ok());
  CHECK(redirect.head.status == 301);
  CHECK(sink.begins == 0);
}

TEST_CASE("nobody there is Unavailable, without a connection; a URL that is none is our mistake") {
  Answers answers;
  const auto engine = MakeEngine();
  engine->Start({.url = absl::StrCat("http://127.0.0.1:", FreePort(), "/")}, answers.Next());
  engine->Start({.url = "http://host name/"}, answers.Next());
  CHECK(absl::IsUnavailable(answers.Await(0).status));
  CHECK_FALSE(answers.Await(0).connected);
  CHECK(absl::IsInvalidArgument(answers.Await(1).status));
}

TEST_CASE("a server that is silent, or whose body drips, is left in time") {
  TextSink sink;
  const auto silent = [](ServedConnection& connection, int) { connection.AwaitClose(); };
  const HttpAnswer first = GetFrom(silent, &sink, [](HttpRequest& request) {
    request.first_byte_within = milliseconds(50);
  });
  CHECK(absl::IsDeadlineExceeded(first.status));
  CHECK(absl::StrContains(first.status.message(), "50 ms"));
  CHECK(first.total >= milliseconds(50));
  const HttpAnswer late = GetFrom(silent, &sink, [](HttpRequest& request) {
    request.deadline = RealClock()->Now() + milliseconds(300);
  });
  CHECK(absl::StrContains(late.status.message(), "deadline"));
  const HttpAnswer continues = GetFrom([](ServedConnection& connection, int) {
    connection.ReadHead();
    connection.Drip("HTTP/1.1 100 Continue\r\n\r\n", 5);
  }, &sink, [](HttpRequest& request) { request.first_byte_within = milliseconds(50); });
  CHECK(absl::IsDeadlineExceeded(continues.status));
  const HttpAnswer drips = GetFrom([](ServedConnection& connection, int) {
    connection.ReadHead();
    connection.Send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    connection.Drip("x", 10);
  }, &sink, nullptr, QuickOptions());
  CHECK(absl::IsDeadlineExceeded(drips.status));
  CHECK(absl::StrContains(drips.status.message(), "slower than"));
}

TEST_CASE("of bodies that are slow together one is given up at a time, the least advanced first") {
  ScriptedServer server([](ServedConnection& connection, int) {
    const std::string head = connection.ReadHead();
    size_t already = 0;
    KVKEEP_CHECK(absl::SimpleAtoi(head.substr(5, head.find(" HTTP") - 5), &already));
    connection.Send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    connection.Send(std::string(already, 'x'));
    connection.Drip("x", 10);
  });
  CurlEngineOptions options;
  options.slow_for = milliseconds(500);
  TextSink sinks[4];
  const int already[] = {1, 90'000, 30'000, 60'000};
  std::vector<int> ended;  // on the engine's thread
  bool slow = true;
  Latch over;
  {
    const auto engine = MakeEngine(options);
    for (size_t i = 0; i < 4; ++i) {
      engine->Start({.url = server.url(absl::StrCat("/", already[i])), .sink = &sinks[i]},
                    [&, i](const HttpAnswer& answer) {
                      slow = slow && answer.slow;
                      ended.push_back(already[i]);
                      if (ended.size() == 4) over.Open();
                    });
    }
    over.Await();
  }
  CHECK(slow);
  // From the end of the first one on they are measured together.
  CHECK(std::is_sorted(ended.begin() + 1, ended.end()));
}

TEST_CASE("TLS that does not come about is no connection, or what somebody has to mend") {
  ScriptedServer silent([](ServedConnection& connection, int) { connection.AwaitClose(); });
  Answers answers;
  CurlEngineOptions options;
  options.ca_file = "/nonexistent/ca.pem";
  const auto misconfigured = MakeEngine(options);
  options = CurlEngineOptions();
  options.connect_within = milliseconds(50);
  const auto engine = MakeEngine(options);
  const std::string url = absl::StrCat("https", silent.url().substr(4));
  engine->Start({.url = url}, answers.Next());
  misconfigured->Start({.url = url}, answers.Next());
  CHECK(absl::StrContains(answers.Await(0).status.message(), "no connection in time"));
  CHECK(absl::IsFailedPrecondition(answers.Await(1).status));
}

TEST_CASE("a proxy is asked that an option names, never one of the environment") {
  std::string seen;
  TextSink sink;
  ScriptedServer proxy([&](ServedConnection& connection, int) {
    seen = connection.ReadHead();
    connection.Send("HTTP/1.1 200 x\r\nContent-Length: 5\r\n\r\nproxy");
  });
  const auto direct = Answering("HTTP/1.1 200 x\r\nContent-Length: 6\r\n\r\ndirect");
  CurlEngineOptions by_proxy;
  by_proxy.proxy = proxy.url("");
  {
    const ScopedVariable none("no_proxy", "*");
    const HttpAnswer answer = GetFrom(
        direct, &sink, [](HttpRequest& request) { request.url = "http://bucket.example/k"; },
        by_proxy);
    CHECK(answer.status.ok());
  }
  CHECK(sink.text == "proxy");
  CHECK(absl::StartsWith(seen, "GET http://bucket.example/k HTTP/1.1\r\nHost: bucket.example\r\n"));
  const ScopedVariable http("http_proxy", proxy.url("")), all("ALL_PROXY", proxy.url(""));
  TextSink without;
  CHECK(GetFrom(direct, &without).status.ok());
  CHECK(without.text == "direct");
}

TEST_CASE("an answer to HEAD has a length and no body") {
  const HttpAnswer answer = GetFrom(
      Answering("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"), nullptr,
      [](HttpRequest& request) { request.method = "HEAD"; });
  CHECK(answer.status.ok());
  CHECK(answer.head.content_bytes == 100);
}

TEST_CASE("a sink that refuses ends its request with its own words") {
  TextSink refuses;
  refuses.begin_status = absl::AbortedError("the twin was first");
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
  CHECK(GetFrom(Answering(ok), &refuses).status == refuses.begin_status);
  CHECK(refuses.text.empty());
  TextSink breaks;
  breaks.take_status = absl::DataLossError("a wrong piece");
  CHECK(GetFrom(Answering(ok), &breaks).status == breaks.take_status);
  TextSink empty;
  CHECK(GetFrom(Answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), &empty).status.ok());
  CHECK(empty.begins == 1);
}

TEST_CASE("a body is sent in its runs; a large one waits for 100 and not for ever") {
  const std::string part(700'000, 'a'), other(700'000, 'b'), small = "small", none;
  const auto put = [&](bool large, const ScriptedServer::Script& script, bool patient = false) {
    ScriptedServer server(script);
    Answers answers;
    CurlEngineOptions options;
    if (patient) options.continue_within = seconds(10);
    const auto engine = MakeEngine(options);
    HttpRequest request{.method = "PUT", .url = server.url()};
    request.body = {AsBytes("begin "), {}, AsBytes(large ? part : small),
                    AsBytes(large ? other : none)};
    engine->Start(std::move(request), answers.Next());
    return answers.Await();
  };
  const std::string done = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
  std::string head, body;
  CHECK(put(false, [&](ServedConnection& connection, int) {
          head = connection.ReadHead();
          body = connection.ReadBody(11);
          connection.Send(done);
        }).status.ok());
  CHECK(body == "begin small");
  CHECK(absl::StrContains(head, "\r\nContent-Length: 11\r\n"));
  CHECK_FALSE(absl::StrContains(head, "Expect"));
  for (const bool says_continue : {true, false}) {
    const HttpAnswer answer = put(true, [&](ServedConnection& connection, int) {
      head = connection.ReadHead();
      if (says_continue) connection.Send("HTTP/1.1 100 Continue\r\n\r\n");
      body = connection.ReadBody(1'400'006);
      connection.Send(done);
    }, says_continue);
    INFO(answer.status);
    CHECK(answer.status.ok());
    CHECK(answer.head.status == 200);
    CHECK(answer.sent_bytes == 1'400'006);
    CHECK(body == "begin " + part + other);
    CHECK(absl::StrContains(head, "\r\nExpect: 100-continue\r\n"));
  }
  const HttpAnswer refused = put(true, [&](ServedConnection& connection, int) {
    connection.ReadHead();
    connection.Send("HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n");
  }, true);
  CHECK(refused.head.status == 412);
  CHECK(refused.sent_bytes == 0);
}

TEST_CASE("a body that a server stops taking is left in time") {
  const std::string body(32 * kMiB, 'a');
  Latch over;  // with its buffers full the server cannot see that the client has gone
  ScriptedServer server([&](ServedConnection& connection, int) {
    connection.ReadHead();
    connection.Send("HTTP/1.1 100 Continue\r\n\r\n");
    connection.ReadBody(1000);
    over.Await();
  });
  Answers answers;
  const auto engine = MakeEngine(QuickOptions());
  engine->Start({.method = "PUT", .url = server.url(), .body = {AsBytes(body)}}, answers.Next());
  CHECK(absl::IsDeadlineExceeded(answers.Await().status));
  over.Open();
}

TEST_CASE("a connection is used again, and a body is sent again when that one had died") {
  const std::string done = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  ScriptedServer server([&](ServedConnection& connection, int number) {
    for (int requests = 0; !connection.ReadHead().empty(); ++requests) {
      connection.ReadBody(4);
      if (number == 0 && requests == 2) return connection.Reset();
      connection.Send(done);
    }
  });
  Answers answers;
  const auto engine = MakeEngine();
  for (size_t i = 0; i < 4; ++i) {
    engine->Start({.method = "PUT", .url = server.url(), .body = {AsBytes("body")}},
                  answers.Next());
    const HttpAnswer answer = answers.Await(i);
    INFO(answer.status);
    CHECK(answer.status.ok());
    CHECK(answer.text == "ok");
  }
  CHECK(server.connections() == 2);
}

TEST_CASE("no more connections than allowed; requests wait, have deadlines there, and a limit") {
  CurlEngineOptions options;
  options.connections = 2;
  options.max_waiting = 3;
  Latch latch;
  ScriptedServer server([&](ServedConnection& connection, int) {
    while (!connection.ReadHead().empty()) {
      latch.Await();
      connection.Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }
  });
  Answers answers;
  const auto engine = MakeEngine(options);
  engine->Start({.url = server.url()}, answers.Next());
  engine->Start({.url = server.url()}, answers.Next());
  HttpRequest impatient{.url = server.url()};
  // The two before have their turn once this one, which waits, has ended.
  impatient.deadline = RealClock()->Now() + milliseconds(20);
  engine->Start(std::move(impatient), answers.Next());
  CHECK(absl::IsDeadlineExceeded(answers.Await(2).status));
  const HttpCall cancelled = engine->Start({.url = server.url()}, answers.Next());
  engine->Start({.url = server.url()}, answers.Next());
  engine->Start({.url = server.url()}, answers.Next());
  engine->Cancel(cancelled);
  CHECK(absl::IsCancelled(answers.Await(3).status));
  for (int i = 0; i < 3; ++i) engine->Start({.url = server.url()}, answers.Next());
  CHECK(absl::IsResourceExhausted(answers.Await(8).status));
  latch.Open();
  for (const size_t i : {0, 1, 4, 5, 6}) CHECK(answers.Await(i).text == "ok");
  CHECK(server.connections() == 2);
}

TEST_CASE("a call that is cancelled is answered soon and once, and so is what an engine leaves") {
  std::atomic<int> closed = 0;
  Answers answers;
  TextSink sink;
  {
    ScriptedServer server([&](ServedConnection& connection, int) {
      connection.ReadHead();
      connection.Send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
      connection.AwaitClose();
      ++closed;
    });
    const auto engine = MakeEngine({});
    const HttpCall call = engine->Start({.url = server.url(), .sink = &sink}, answers.Next());
    engine->Cancel(call);
    CHECK(absl::IsCancelled(answers.Await(0).status));
    engine->Cancel(call);
    engine->Cancel(HttpCall(12345));
    engine->Start({.url = server.url()}, answers.Next());
    engine->Start({.url = server.url()}, answers.Next());
  }
  CHECK(absl::IsCancelled(answers.Await(1).status));
  CHECK(absl::IsCancelled(answers.Await(2).status));
  CHECK(closed <= 3);
}

TEST_CASE("options that cannot be are refused") {
  for (const auto& change : std::vector<std::function<void(CurlEngineOptions&)>>{
           [](CurlEngineOptions& options) { options.connections = 0; },
           [](CurlEngineOptions& options) { options.connections = 1025; },
           [](CurlEngineOptions& options) { options.max_head_bytes = 10; },
           [](CurlEngineOptions& options) { options.slow_for = milliseconds(0); }}) {
    CurlEngineOptions options;
    change(options);
    CHECK(absl::IsInvalidArgument(CurlEngine::Make(options, RealClock()).status()));
  }
}

TEST_CASE("tasks run on the engine's thread, in the order of their times and not before them") {
  Latch all;
  std::vector<int> ran;
  std::vector<MonotonicTime> at;
  std::vector<std::thread::id> threads;
  const auto engine = MakeEngine();
  const auto task = [&](int number) {
    return [&, number] {
      ran.push_back(number);
      at.push_back(RealClock()->Now());
      threads.push_back(std::this_thread::get_id());
      if (number == 3) all.Open();
    };
  };
  MonotonicTime begin{};
  engine->RunAt(MonotonicTime::min(), [&] {  // so all four are known before the first may run
    begin = RealClock()->Now();
    engine->RunAt(begin + milliseconds(60), task(3));
    engine->RunAt(begin + milliseconds(30), task(2));
    engine->RunAt(MonotonicTime::min(), task(0));
    engine->RunAt(MonotonicTime::min(), task(1));
  });
  all.Await();
  CHECK(ran == std::vector<int>{0, 1, 2, 3});
  CHECK(at[2] >= begin + milliseconds(30));
  CHECK(at[3] >= begin + milliseconds(60));
  for (const std::thread::id& thread : threads) {
    CHECK(thread == threads[0]);
    CHECK(thread != std::this_thread::get_id());
  }
}

TEST_CASE("what is started by who is told of the end is answered too, and tasks go unrun") {
  ScriptedServer server([](ServedConnection& connection, int) { connection.AwaitClose(); });
  int answered = 0;
  bool ran = false;
  auto engine = MakeEngine();
  CurlEngine* const raw = engine.get();
  raw->RunAt(RealClock()->Now() + seconds(3600), [&] { ran = true; });
  raw->Start({.url = server.url()}, [&](HttpAnswer first) {
    answered += absl::IsCancelled(first.status);
    raw->Start({.url = server.url()},
               [&](HttpAnswer second) { answered += absl::IsCancelled(second.status); });
  });
  engine.reset();
  CHECK(answered == 2);
  CHECK_FALSE(ran);
}

}  // namespace kvkeep
