// Final refusals: of one object, of one verb, of all requests.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/tiers/objects/scripted_bucket.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Outcome = ObjectOutcome;
using Health = ObjectStoreHealth::State;

}  // namespace

TEST_CASE("what somebody has to mend stops all requests, says what it is, and is tried again") {
  ScriptedBucket b;
  b.Put("n", "hello");
  b.instead = FirstMeet(2, S3Error(403, "SignatureDoesNotMatch"));  // an absent name is one, too
  TextObjectSink sink;
  std::optional<ObjectAnswer> answer;
  b.store->Get({.name = "n"}, &sink, b.Into(&answer));
  b.Settle();
  CHECK(answer->outcome == Outcome::kMisconfigured);
  const ObjectStoreHealth health = b.store->health();
  CHECK(health.state == Health::kMisconfigured);
  CHECK(health.error.code == "SignatureDoesNotMatch");
  CHECK_FALSE(health.what_to_do.empty());
  CHECK(health.retry_in > seconds(40));
  b.sent.clear();
  answer.reset();
  b.store->Get({.name = "n"}, &sink, b.Into(&answer));
  b.Settle();
  CHECK(answer->outcome == Outcome::kMisconfigured);
  CHECK(answer->attempts == 0);
  CHECK(b.sent.empty());
  b.Advance(seconds(60));
  CHECK(b.store->health().readable());
  answer.reset();
  b.store->Get({.name = "n"}, &sink, b.Into(&answer));
  b.Settle();
  CHECK(answer->ok());
  CHECK(b.store->health().error == ObjectError{});
}

TEST_CASE("an object that is refused is a miss by itself, as often as it is asked for") {
  ScriptedBucket b;
  for (const char* name : {"1/bad", "1/n"}) b.Put(name, "hello");
  const auto refused = GENERATE(S3Error(403, "InvalidObjectState"), S3Error(403, "AccessDenied"),
                                S3Error(400, "KMS.DisabledException"),
                                ScriptedAnswer{.status = 403, .body = "a firewall's page"});
  b.instead = [&](const HttpRequest& request) -> std::optional<std::optional<ScriptedAnswer>> {
    if (!absl::EndsWith(request.url, "/1/bad")) return std::nullopt;
    return refused;
  };
  b.sent.clear();
  for (int i = 0; i < 20; ++i) {
    TextObjectSink bad, well;
    CHECK(b.Get({.name = "1/bad"}, &bad)->outcome == Outcome::kRefused);
    CHECK(bad.begins == 0);
    CHECK(b.Get({.name = "1/n"}, &well)->ok());
    CHECK(b.store->health().state == Health::kWell);
    b.Advance(milliseconds(100));
  }
  CHECK(b.store->counters().breaker_opened == 0);
  // An absent name is not asked for each time.
  CHECK(b.store->counters().refusals_checked <= 3);
  CHECK(b.sent.size() == 40 + b.store->counters().refusals_checked);
}

TEST_CASE("a refused put is of puts alone when an absent name is told of, and of all when not") {
  ScriptedBucket b;
  b.Put("n", "hello");
  const bool of_all = GENERATE(false, true);
  b.instead = [&](const HttpRequest& request) -> std::optional<std::optional<ScriptedAnswer>> {
    if (!of_all && request.method == "GET") return std::nullopt;
    return S3Error(400, "InvalidRequest");
  };
  std::optional<ObjectAnswer> answer;
  b.store->Put({.name = "m"}, b.Into(&answer));
  b.Settle();
  CHECK(answer->outcome == Outcome::kMisconfigured);
  CHECK(b.store->health().readable() == !of_all);
  CHECK_FALSE(b.store->health().writable());
  CHECK(b.store->health().error.code == "InvalidRequest");
}

TEST_CASE("rights that puts alone lack turn off puts alone") {
  ScriptedBucket b;
  b.Put("n", "hello");
  b.instead = FirstMeet(1, S3Error(403, "AccessDenied"));
  std::optional<ObjectAnswer> answer;
  b.store->Put({.name = "m"}, b.Into(&answer));
  b.Settle();
  CHECK(answer->outcome == Outcome::kMisconfigured);
  CHECK(b.store->health().readable());
  CHECK_FALSE(b.store->health().writable());
  CHECK(b.store->health().error.code == "AccessDenied");
  TextObjectSink sink;
  CHECK(b.Get({.name = "n"}, &sink)->ok());
}

}  // namespace kvkeep
