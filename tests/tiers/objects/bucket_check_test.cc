#include "tiers/objects/bucket_check.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"
#include "tests/fakes/served_bucket.h"
#include "tiers/objects/curl_engine.h"

namespace kvkeep {
namespace {

using Verdict = BucketFinding::Verdict;

class CheckedBucket {
 public:
  std::vector<BucketFinding> Check(const char* secret = "secret", bool only_ask = false,
                                   std::chrono::seconds lifetime = {}) {
    ScriptedServer server([this](ServedConnection& connection, int) {
      ServeBucket(bucket, connection);
    });
    const S3Urls urls =
        S3Urls::Make({.endpoints = {server.url("")}, .bucket = "bucket", .prefix = "kv"}).value();
    const auto engine =
        CurlEngine::Make({.expect_continue_from_bytes = UINT64_MAX}, RealClock()).value();
    SeededRandom random(1);
    return (only_ask ? AskBucket : CheckBucket)(
        urls, std::make_shared<const S3Keys>(S3Keys{"ID", SecretText(secret), "", {}}),
        {.timed_reads = 9, .lifetime = lifetime}, engine.get(), RealClock(), &random);
  }

  FakeS3 bucket{RealClock(),
                std::make_shared<const S3Keys>(S3Keys{"ID", SecretText("secret"), "", {}})};
};

const BucketFinding& FindingOf(const std::vector<BucketFinding>& findings, const char* what) {
  for (const BucketFinding& finding : findings) {
    if (absl::StartsWith(finding.what, what)) return finding;
  }
  FAIL("no finding of " << what);
  return findings[0];
}

}  // namespace

TEST_CASE("a server as it should be is found good in all but what it has not, and left empty") {
  CheckedBucket b;
  const std::vector<BucketFinding> findings = b.Check();
  CHECK(findings.size() >= 15);
  for (const BucketFinding& finding : findings) {
    INFO(finding.what << ": " << finding.says);
    CHECK(finding.verdict == Verdict::kGood);
    CHECK(finding.means.empty());
  }
  CHECK(FindingOf(findings, "the same, 12 at once").says == "1 stored");
  CHECK(b.bucket.objects().empty());
}

TEST_CASE("what a server does otherwise is noted, with what follows from it") {
  CheckedBucket b;
  b.bucket.clock_ahead = std::chrono::seconds(-100);
  b.bucket.knows_conditions = false;
  b.bucket.ignores_conditions = true;
  const std::vector<BucketFinding> findings = b.Check();
  CHECK(FindingOf(findings, "its clock").verdict == Verdict::kNote);
  const BucketFinding& condition = FindingOf(findings, "put what is there, If-None-Match");
  CHECK(condition.says == "501 NotImplemented");
  CHECK(condition.verdict == Verdict::kNote);
  CHECK_FALSE(condition.means.empty());
  CHECK(FindingOf(findings, "get a range of a version").verdict == Verdict::kNote);
}

TEST_CASE("a server that lists the bucket, asked for its settings, has none") {
  CheckedBucket b;
  b.bucket.knows_settings = false;
  b.bucket.Change("kv/Enabled", "an object whose name is in that list");
  const std::vector<BucketFinding> findings = b.Check();
  const BucketFinding& rules = FindingOf(findings, "rules that expire objects");
  CHECK(rules.verdict == Verdict::kNote);
  CHECK(rules.says == "200");
  CHECK(absl::StartsWith(rules.means, "it does not say"));
  CHECK(FindingOf(findings, "old versions").verdict == Verdict::kGood);
  CHECK(FindingOf(findings, "object lock").verdict == Verdict::kGood);
}

TEST_CASE("the rules of a bucket are held against the lifetime that its nodes are told") {
  CheckedBucket b;
  const auto rules = [&b](int days) {
    return FindingOf(b.Check("secret", false, std::chrono::hours(24) * days),
                     "rules that expire objects");
  };
  CHECK(rules(0).says == "after 7 days, so g4.lifetime: 7d");
  CHECK(rules(0).verdict == Verdict::kGood);
  CHECK(rules(7).says == "after 7 days");
  CHECK(rules(7).verdict == Verdict::kGood);
  CHECK(rules(8).verdict == Verdict::kBad);
  CHECK(rules(8).means == "images go before they are written anew: g4.lifetime: 7d");
  CHECK(rules(6).verdict == Verdict::kNote);
  CHECK(absl::StrContains(rules(6).means, "sooner than they must"));
  b.bucket.lifecycle = "<LifecycleConfiguration/>";
  CHECK(rules(7).verdict == Verdict::kNote);
  CHECK(rules(7).says == "none for images");
  CHECK(absl::StrContains(rules(7).means, "kvkeep g4 sweep"));
  b.bucket.lifecycle = "<LifecycleConfiguration><Rule><Action/></Rule></LifecycleConfiguration>";
  CHECK(rules(7).says == "some that are not understood");
}

TEST_CASE("rules that archive images are found bad, those that move them elsewhere noted") {
  CheckedBucket b;
  const auto moves_to = [&b](const char* storage) {
    b.bucket.lifecycle = absl::StrCat(
        "<LifecycleConfiguration><Rule><Filter/><Status>Enabled</Status><Transition><Days>30</Days>"
        "<StorageClass>",
        storage, "</StorageClass></Transition></Rule></LifecycleConfiguration>");
    return FindingOf(b.Check(), "rules that move objects");
  };
  CHECK(moves_to("GLACIER").verdict == Verdict::kBad);
  CHECK(absl::StrContains(moves_to("GLACIER").means, "take the rule away"));
  CHECK(moves_to("STANDARD_IA").verdict == Verdict::kNote);
  CHECK(moves_to("STANDARD_IA").says == "to STANDARD_IA");
}

TEST_CASE("where nothing works the check ends, and says why") {
  CheckedBucket b;
  const std::vector<BucketFinding> findings = b.Check("another secret");
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].verdict == Verdict::kBad);
  CHECK(findings[0].says == "403 SignatureDoesNotMatch");
  CHECK(absl::StrContains(findings[0].means, "second line"));
}

TEST_CASE("a bucket can be asked once, which changes nothing there") {
  CheckedBucket b;
  b.bucket.clock_ahead = std::chrono::seconds(100);
  const std::vector<BucketFinding> well = b.Check("secret", true);
  REQUIRE(well.size() == 2);
  CHECK(well[0].verdict == Verdict::kGood);
  CHECK(well[0].says == "404 NoSuchKey");
  CHECK(well[1].verdict == Verdict::kNote);
  CHECK(absl::StartsWith(well[1].what, "its clock"));
  CHECK(b.bucket.served() == 1);
  const std::vector<BucketFinding> refused = b.Check("another secret", true);
  CHECK(refused[0].verdict == Verdict::kBad);
  CHECK(absl::StrContains(refused[0].means, "second line"));
}

TEST_CASE("answers that wait for an ACK are told from slow ones") {
  const auto answered = [](int ms) { return WaitsForAcks(std::chrono::milliseconds(ms)); };
  CHECK(answered(44));
  CHECK_FALSE(answered(38));
  CHECK_FALSE(answered(90));
}

}  // namespace kvkeep
