#include "tiers/objects/s3_requests.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

using Outcome = ObjectOutcome;

struct SignedBucket {
  S3Urls urls = S3Urls::Make({.endpoints = {"http://h:9000"}, .bucket = "bucket", .prefix = "kv"})
                    .value();
  SigV4Signer signer{"us-east-1"};
  SigningContext signing{&signer,
                         std::make_shared<const S3Keys>(S3Keys{"ID", SecretText("s"), "T", {}}),
                         UnixSeconds(1369353600)};
  EndpointNumber endpoint{0};
};

HttpHead PartHead(const char* range, std::optional<uint64_t> bytes = std::nullopt) {
  return {206, {{"content-range", range}}, bytes};
}

}  // namespace

TEST_CASE("requests are signed over the host and what S3 reads, and carry the rest beside it") {
  SignedBucket b;
  const HttpRequest get =
      MakeGet(b.urls, b.endpoint, b.signing, {"1/n", ByteRange{4096, 100}, "\"e\""});
  CHECK(get.method == "GET");
  CHECK(get.url == "http://h:9000/bucket/kv/1/n");
  CHECK(FindHeader(get.headers, "range") == "bytes=4096-4195");
  CHECK(FindHeader(get.headers, "if-match") == "\"e\"");
  CHECK(absl::StrContains(FindHeader(get.headers, "authorization"),
                          "SignedHeaders=host;x-amz-content-sha256;x-amz-date;"
                          "x-amz-security-token,"));
  const std::string body = "123456789";
  const HttpRequest put =
      MakePut(b.urls, b.endpoint, b.signing, {"1/n", {AsBytes(body)}, 0xe3069283, true});
  CHECK(put.method == "PUT");
  CHECK(FindHeader(put.headers, "x-amz-checksum-crc32c") == "4waSgw==");
  CHECK(FindHeader(put.headers, "x-amz-content-sha256") == "UNSIGNED-PAYLOAD");
  CHECK(FindHeader(put.headers, "if-none-match") == "*");
  CHECK(put.body.size() == 1);
  CHECK(MakeDelete(b.urls, b.endpoint, b.signing, "1/n").method == "DELETE");
  CHECK(MakeGet(b.urls, b.endpoint, b.signing, {"1/n", {}, ""}).headers.size() == 5);
  const HttpRequest list = MakeList(b.urls, b.endpoint, b.signing, {"1/0ab/", "a+b"});
  CHECK(list.url == "http://h:9000/bucket/?continuation-token=a%2Bb&list-type=2&max-keys=1000&"
                    "prefix=kv%2F1%2F0ab%2F");
}

TEST_CASE("a body is taken when its head says that it is the part asked for") {
  const ByteRange part{100, 50}, begin{0, 50};
  CHECK(CheckGetHead(part, PartHead("bytes 100-149/1000", 50)).ok());
  CHECK(CheckGetHead(part, PartHead("bytes 100-119/120")).ok());  // the object ends there
  CHECK(CheckGetHead(begin, {200, {}, 1000}).ok());
  CHECK(CheckGetHead(std::nullopt, {200, {}, 1000}).ok());
  for (const char* range : {"", "bytes 0-49/1000", "bytes 100-150/1000", "bytes 100-119/1000",
                            "bytes 100-119/*", "bytes 101-149/1000"}) {
    INFO(range);
    CHECK(absl::IsDataLoss(CheckGetHead(part, PartHead(range))));
  }
  CHECK(absl::IsDataLoss(CheckGetHead(part, PartHead("bytes 100-149/1000", 49))));
  CHECK(absl::IsDataLoss(CheckGetHead(part, {200, {}, 1000})));
  CHECK(absl::IsDataLoss(CheckGetHead(std::nullopt, PartHead("bytes 0-9/10"))));
}

TEST_CASE("an answer tells version, size and times, and is none when bytes are missing") {
  HttpAnswer answer;
  answer.head = {206,
                 {{"Content-Range", "bytes 0-4095/8192"}, {"ETag", "\"e\""},
                  {"Last-Modified", "Fri, 24 May 2013 00:00:00 GMT"},
                  {"Date", "Fri, 24 May 2013 00:01:00 GMT"}},
                 std::nullopt};
  answer.body_bytes = 4096;
  const ObjectQuestion get{ObjectVerb::kGet, false};
  const UnixSeconds now(1369353600);
  const S3Answer read = ReadAnswer(get, answer, now);
  CHECK(read.outcome == Outcome::kOk);
  CHECK(read.head.etag == "\"e\"");
  CHECK(read.head.object_bytes == 8192);
  CHECK(read.head.modified == now);
  CHECK(read.head.answered == UnixSeconds(now.value() + 60));
  answer.body_bytes = 4095;
  CHECK(ReadAnswer(get, answer, now).outcome == Outcome::kBroken);
  answer.head = {200, {}, 10};
  answer.body_bytes = 10;
  CHECK(ReadAnswer(get, answer, now).head.object_bytes == 10);
  answer.head = {503, {{"retry-after", "7"}}, std::nullopt};
  answer.text = "<Error><Code>SlowDown</Code></Error>";
  CHECK(ReadAnswer(get, answer, now).outcome == Outcome::kThrottled);
  CHECK(ReadAnswer(get, answer, now).retry_after == std::chrono::seconds(7));
}

TEST_CASE("what goes wrong on the way is an outcome too") {
  const std::vector<std::pair<absl::Status, Outcome>> cases = {
      {absl::UnavailableError(""), Outcome::kBroken},
      {absl::DataLossError(""), Outcome::kBroken},
      {absl::ResourceExhaustedError(""), Outcome::kBroken},
      {absl::DeadlineExceededError(""), Outcome::kLate},
      {absl::CancelledError(""), Outcome::kCancelled},
      {absl::AbortedError(""), Outcome::kCancelled},
      {absl::FailedPreconditionError(""), Outcome::kMisconfigured},
      {absl::InvalidArgumentError(""), Outcome::kMisconfigured},
  };
  for (const auto& [status, outcome] : cases) {
    HttpAnswer answer;
    answer.status = status;
    CHECK(ReadAnswer({}, answer, UnixSeconds(0)).outcome == outcome);
    CHECK(ReadAnswer({}, answer, UnixSeconds(0)).connection_failed);
  }
}

}  // namespace kvkeep
