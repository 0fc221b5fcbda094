// ScriptedBucket: an S3Store over a FakeS3 on an engine of the test's; it collects answers, and the
// test moves time. Requests that a test's `instead` answers do not reach the server.
#pragma once

#include <absl/strings/str_cat.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/fakes/fake_s3.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/objects/s3_store.h"

namespace kvkeep {

// Keys as a test sets them.
class SetKeySource final : public S3KeySource {
 public:
  explicit SetKeySource(std::shared_ptr<std::string> secret) : secret_(std::move(secret)) {}
  void Fetch(Done done) override {
    if (secret_->empty()) return std::move(done)(absl::NotFoundError("no file"));
    std::move(done)(S3Keys{"ID", SecretText(*secret_), "", {}});
  }

 private:
  const std::shared_ptr<std::string> secret_;
};

// Returns a text in which no two places are alike.
inline std::string LongText(size_t bytes) {
  std::string text;
  while (text.size() < bytes) absl::StrAppend(&text, text.size(), ",");
  text.resize(bytes);
  return text;
}

class TextObjectSink final : public ObjectSink {
 public:
  absl::Status Begin(const ObjectHead& begun) override {
    head = begun;
    ++begins;
    return says;
  }
  absl::Status Take(std::span<const std::byte> bytes) override {
    absl::StrAppend(&text, AsText(bytes));
    return text.size() > most ? absl::AbortedError("enough") : absl::OkStatus();
  }
  ObjectHead head;
  std::string text;
  int begins = 0;
  size_t most = SIZE_MAX;
  absl::Status says;
};

class ScriptedBucket {
 public:
  using Sent = std::vector<HttpRequest>;
  // Answers instead of the server; without a value the request hangs.
  using Instead = std::function<std::optional<std::optional<ScriptedAnswer>>(const HttpRequest&)>;

  explicit ScriptedBucket(S3StoreOptions options = {}, std::vector<std::string> endpoints = {
                                                           "http://h:9000"}) {
    credentials.Tick();
    auto scripted = std::make_unique<ScriptedHttpEngine>(
        &executor,
        [this](const HttpRequest& request, std::string body) -> std::optional<ScriptedAnswer> {
          sent.push_back(request);
          if (instead) {
            if (auto answer = instead(request)) return *std::move(answer);
          }
          return server.Serve(request, std::move(body));
        },
        1000, &clock);
    engine = scripted.get();
    store = std::make_unique<S3Store>(
        S3Urls::Make({.endpoints = std::move(endpoints), .bucket = "bucket", .prefix = "kv"})
            .value(),
        options, std::move(scripted), &credentials, &clock, &random);
  }

  // Runs everything that happens without time.
  void Settle() { executor.RunAll(); }
  // Runs everything that happens until then, in order.
  void Advance(MonotonicTime by) {
    const MonotonicTime until = clock.Now() + by;
    Settle();
    while (engine->next().has_value() && *engine->next() <= until) {
      clock.Advance(std::max(*engine->next() - clock.Now(), MonotonicTime(0)));
      engine->RunDue();
      Settle();
    }
    clock.Advance(until - clock.Now());
  }
  MonotonicTime In(std::chrono::milliseconds time) const { return clock.Now() + time; }

  ObjectStore::Done Into(std::optional<ObjectAnswer>* answer) {
    return [answer](ObjectAnswer told) {
      KVKEEP_CHECK(!answer->has_value());
      *answer = std::move(told);
    };
  }
  void RunTo(const std::optional<ObjectAnswer>& answer) {
    Settle();
    while (!answer.has_value() && engine->next().has_value()) {
      Advance(std::max(*engine->next() - clock.Now(), MonotonicTime(0)));
    }
  }
  // Waits for each one's end, however long that takes.
  std::optional<ObjectAnswer> Get(GetObject get, ObjectSink* sink) {
    std::optional<ObjectAnswer> answer;
    store->Get(std::move(get), sink, Into(&answer));
    RunTo(answer);
    return answer;
  }
  std::optional<ObjectAnswer> Put(const std::string& name, const std::string& body,
                                  bool if_absent = false) {
    std::optional<ObjectAnswer> answer;
    store->Put({.name = name, .body = {AsBytes(body)}, .if_absent = if_absent}, Into(&answer));
    RunTo(answer);
    return answer;
  }

  ManualClock clock;
  ManualExecutor executor;
  SeededRandom random{1};
  std::shared_ptr<std::string> secret = std::make_shared<std::string>("secret");
  S3Credentials credentials{std::make_unique<SetKeySource>(secret), &clock, &random};
  FakeS3 server{&clock,
                std::make_shared<const S3Keys>(S3Keys{"ID", SecretText("secret"), "", {}})};
  Instead instead;
  Sent sent;
  ScriptedHttpEngine* engine = nullptr;
  std::unique_ptr<S3Store> store;
};

inline ScriptedAnswer S3Error(int status, const char* code) {
  return {.status = status, .body = absl::StrCat("<Error><Code>", code, "</Code></Error>")};
}

// Lets the first `count` requests meet this, the others the server.
inline ScriptedBucket::Instead FirstMeet(size_t count, const ScriptedAnswer& answer) {
  return [count, answer](const HttpRequest&) mutable
         -> std::optional<std::optional<ScriptedAnswer>> {
    if (count == 0) return std::nullopt;
    --count;
    return answer;
  };
}

}  // namespace kvkeep
