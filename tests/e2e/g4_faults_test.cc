// A bucket over HTTP that is down, hangs, lies, refuses or cuts costs misses: never wrong bytes,
// never a call that does not end, and nothing of what the node has. When it serves again it is used
// again, without a restart.
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <chrono>

#include "tests/e2e/g4_place.h"
#include "tests/fakes/served_bucket.h"
#include "tiers/base/clock.h"

namespace kvkeep::e2e {
namespace {

enum class Bucket : uint8_t {
  kServes,
  kRefusesConnections,  // resets each
  kHangs,               // takes requests, answers nothing
  kAbsent,              // 404 to all
  kHalfBusy,            // 503 to each second one
  kCuts,                // bodies after a half
  kFlips,               // a bit of each body
  kDrips,               // a byte each 20 ms
  kDenies,              // 403
};

// Of a read's answer that has a body.
bool HasBody(const HttpRequest& request, const ScriptedAnswer& answer) {
  return request.method == "GET" && answer.status < 300 && !answer.body.empty();
}

class BucketServer {
 public:
  std::string url() const { return server_.url("/bucket"); }
  size_t objects() const { return bucket_.objects().size(); }
  std::atomic<Bucket> state{Bucket::kServes};
  std::atomic<int> requests{0};

 private:
  bool Change(const HttpRequest& request, ScriptedAnswer& answer, ServedConnection& connection) {
    const int number = ++requests;
    switch (state) {
      case Bucket::kServes: return true;
      case Bucket::kRefusesConnections: connection.Reset(); return false;
      case Bucket::kHangs: connection.AwaitClose(); return false;
      case Bucket::kAbsent: answer = Error(404, "NoSuchKey"); return true;
      case Bucket::kHalfBusy:
        if (number % 2 == 0) answer = Error(503, "SlowDown");
        return true;
      case Bucket::kFlips:
        if (HasBody(request, answer)) answer.body[answer.body.size() * 2 / 3] ^= 4;
        return true;
      case Bucket::kDenies: answer = Error(403, "AccessDenied"); return true;
      case Bucket::kCuts:
      case Bucket::kDrips: break;
    }
    if (!HasBody(request, answer)) return true;
    connection.Send(absl::StrCat("HTTP/1.1 200 So\r\nContent-Length: ", answer.body.size(),
                                 "\r\n\r\n"));
    if (state == Bucket::kCuts) {
      connection.Send(answer.body.substr(0, answer.body.size() / 2));
    } else {
      connection.Drip("x", 20);
    }
    return false;
  }
  static ScriptedAnswer Error(int status, const std::string& code) {
    return {.status = status,
            .headers = {{"Content-Type", "application/xml"}},
            .body = absl::StrCat("<Error><Code>", code, "</Code></Error>")};
  }

  FakeS3 bucket_{RealClock(),
                 std::make_shared<const S3Keys>(S3Keys{"ID", SecretText("secret"), "", {}})};
  ScriptedServer server_{[this](ServedConnection& connection, int) {
    ServeBucket(bucket_, connection,
                [this](const HttpRequest& request, ScriptedAnswer& answer, ServedConnection& way) {
                  return Change(request, answer, way);
                });
  }};
};

constexpr size_t kFaultChunkBytes = 300'000;

class FaultNode {
 public:
  FaultNode(const BucketServer& bucket, const ScratchDir& dir, int number)
      : site({.g2 = "64MiB", .segment_bytes = "16MiB", .devices = {{.capacity = "96MiB"}},
              .local = true}) {
    const std::string key = dir.path() + "/key", credentials = dir.path() + "/credentials";
    if (number == 0) {
      WriteForOwner(key, FleetKeyOf('1'));
      WriteForOwner(credentials, "ID\nsecret\n");
    }
    site.settings.extra = absl::StrCat(
        "g4: {url: \"", bucket.url(), "\", credentials_file: ", credentials,
        ", admission: all, write_bytes_per_second: ", number == 0 ? "1GiB" : "0",
        "}\nfleet: {name: t, key_file: ", key, "}\n");
    site.Start();
    engine = std::make_unique<Engine>(site);
  }
  // Looks beyond, and gets what was leased: how many are hits, with the right bytes.
  size_t Recall(const std::vector<TestChunk>& chunks) {
    return RecallLeading(*engine, chunks, std::chrono::milliseconds(500));
  }

  Site site;
  std::unique_ptr<Engine> engine;
};

}  // namespace

TEST_CASE("whatever a bucket does, lookups and gets end, and no byte is wrong") {
  const ScratchDir dir;
  BucketServer bucket;
  const std::vector<TestChunk> chunks = Chunks(1, 24, kFaultChunkBytes);
  const std::vector<TestChunk> local = Chunks(500, 8, kFaultChunkBytes);
  {
    FaultNode first(bucket, dir, 0);
    REQUIRE(first.engine->PutAll(chunks));
    const bool written = Eventually([&] { return bucket.objects() == chunks.size(); });
    INFO(first.site.Log() << first.site.Status().g4().ShortDebugString());
    REQUIRE(written);
    CHECK(first.site.Stop().exit_status == 0);
  }
  const Bucket state =
      GENERATE(Bucket::kRefusesConnections, Bucket::kHangs, Bucket::kAbsent, Bucket::kHalfBusy,
               Bucket::kCuts, Bucket::kFlips, Bucket::kDrips, Bucket::kDenies);
  CAPTURE(static_cast<int>(state));
  FaultNode second(bucket, dir, 1);
  bucket.state = state;
  REQUIRE(second.engine->PutAll(local));
  const auto began = std::chrono::steady_clock::now();
  for (int round = 0; round < 5; ++round) {
    const size_t hits = second.Recall(chunks);
    CHECK((hits == 0 || state == Bucket::kHalfBusy));
    CHECK(second.engine->Hits(local) == local.size());
  }
  CHECK(second.engine->wrong_bytes == 0);
  // A search of 0.5 s each at most, and what gets of what was found take.
  const auto took = std::chrono::steady_clock::now() - began;
  CHECK((kSanitized || took < std::chrono::seconds(35)));
  bucket.state = Bucket::kServes;
  // What was proven wrong was removed there. The others come, once it is asked again.
  const size_t left = bucket.objects();
  CHECK((left == chunks.size() || state == Bucket::kFlips || state == Bucket::kCuts));
  // Who was denied asks again after a minute: too long for here.
  if (left == chunks.size() && state != Bucket::kDenies) {
    // What was absent a while ago comes one by one, and the last few are not worth a question.
    const size_t all = state == Bucket::kAbsent ? chunks.size() - 7 : chunks.size();
    CHECK(Eventually([&] { return second.Recall(chunks) >= all; }, milliseconds(90'000)));
  }
  CHECK(second.engine->wrong_bytes == 0);
  CHECK(second.site.Stop().exit_status == 0);
}

TEST_CASE("a daemon ends in order while its bucket hangs") {
  const ScratchDir dir;
  BucketServer bucket;
  FaultNode node(bucket, dir, 0);
  bucket.state = Bucket::kHangs;
  const std::vector<TestChunk> chunks = Chunks(1, 8, kFaultChunkBytes);
  REQUIRE(node.engine->PutAll(chunks));
  REQUIRE(Eventually([&] { return bucket.requests > 0; }));
  const Ending ending = node.site.Stop();
  CHECK(ending.exit_status == 0);
  bucket.state = Bucket::kServes;
  node.site.Start();
  node.engine = std::make_unique<Engine>(node.site);
  CHECK(node.engine->Hits(chunks) == chunks.size());
}

}  // namespace kvkeep::e2e
