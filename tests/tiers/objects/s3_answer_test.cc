#include "tiers/objects/s3_answer.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "tiers/objects/s3_requests.h"

namespace kvkeep {
namespace {

using Outcome = ObjectOutcome;

constexpr ObjectQuestion kGetAny{ObjectVerb::kGet, false};
constexpr ObjectQuestion kGetOne{ObjectVerb::kGet, true};
constexpr ObjectQuestion kPutAny{ObjectVerb::kPut, false};
constexpr ObjectQuestion kPutNew{ObjectVerb::kPut, true};
constexpr ObjectQuestion kDeleteAny{ObjectVerb::kDelete, false};
constexpr ObjectQuestion kListAny{ObjectVerb::kList, false};

struct AnswerCase {
  ObjectQuestion question;
  int status;
  const char* code;
  Outcome outcome;
};

void CheckJudged(const std::vector<AnswerCase>& cases) {
  for (const AnswerCase& c : cases) {
    INFO(static_cast<int>(c.question.verb) << " " << c.status << " " << c.code);
    CHECK(NameOf(Judge(c.question, c.status, c.code)) == NameOf(c.outcome));
  }
}

}  // namespace

TEST_CASE("an answer to one request has one outcome, and only NoSuchKey says absent") {
  CheckJudged({
      {kGetAny, 200, "", Outcome::kOk},
      {kGetAny, 206, "", Outcome::kOk},
      {kGetAny, 204, "", Outcome::kBroken},
      {kPutNew, 200, "", Outcome::kOk},
      {kDeleteAny, 204, "", Outcome::kOk},
      {kListAny, 200, "SlowDown", Outcome::kOk},
      {kListAny, 206, "", Outcome::kBroken},
      // Only NoSuchKey is absent.
      {kGetAny, 404, "NoSuchKey", Outcome::kAbsent},
      {kDeleteAny, 404, "NoSuchKey", Outcome::kOk},
      {kPutAny, 404, "NoSuchKey", Outcome::kMisconfigured},
      {kListAny, 404, "NoSuchKey", Outcome::kMisconfigured},
      {kGetAny, 404, "", Outcome::kMisconfigured},
      {kGetAny, 404, "NoSuchBucket", Outcome::kMisconfigured},
      {kGetAny, 404, "XAdminUserNotFound", Outcome::kDenied},
      {kGetAny, 403, "NoSuchKey", Outcome::kMisconfigured},
      {kPutNew, 412, "PreconditionFailed", Outcome::kExists},
      {kPutNew, 412, "", Outcome::kExists},
      {kGetOne, 412, "PreconditionFailed", Outcome::kChanged},
      {kGetAny, 412, "PreconditionFailed", Outcome::kMisconfigured},
      {kDeleteAny, 412, "", Outcome::kMisconfigured},
      {{ObjectVerb::kDelete, true}, 412, "", Outcome::kMisconfigured},
      {kPutNew, 409, "ConditionalRequestConflict", Outcome::kConflict},
      {kPutNew, 409, "OperationAborted", Outcome::kConflict},
      {kPutNew, 409, "", Outcome::kConflict},
      {kPutNew, 501, "NotImplemented", Outcome::kUnsupported},
      {kPutNew, 501, "", Outcome::kUnsupported},
      {kPutNew, 400, "NotImplemented", Outcome::kUnsupported},
      {kGetAny, 416, "InvalidRange", Outcome::kShort},
      {kGetAny, 416, "", Outcome::kShort},
  });
}

TEST_CASE("an answer that is about the server or the keys has one outcome, whatever was asked") {
  CheckJudged({
      // Broken: again.
      {kGetAny, 500, "InternalError", Outcome::kBroken},
      {kGetAny, 500, "", Outcome::kBroken},
      {kGetAny, 502, "", Outcome::kBroken},
      {kGetAny, 504, "", Outcome::kBroken},
      {kGetAny, 520, "", Outcome::kBroken},
      {kGetAny, 408, "", Outcome::kBroken},
      {kPutAny, 400, "RequestTimeout", Outcome::kBroken},
      {kPutAny, 400, "BadDigest", Outcome::kBroken},
      {kPutAny, 400, "XAmzContentChecksumMismatch", Outcome::kBroken},
      {kPutAny, 400, "IncompleteBody", Outcome::kBroken},
      {kGetAny, 100, "", Outcome::kBroken},
      {kGetAny, 0, "", Outcome::kBroken},
      {kGetAny, 999, "SlowDown", Outcome::kBroken},
      // Throttled: all wait.
      {kGetAny, 503, "SlowDown", Outcome::kThrottled},
      {kGetAny, 503, "SlowDownRead", Outcome::kThrottled},
      {kGetAny, 503, "", Outcome::kThrottled},
      {kGetAny, 429, "", Outcome::kThrottled},
      {kGetAny, 400, "RequestLimitExceeded", Outcome::kThrottled},
      // Keys and clocks.
      {kGetAny, 400, "ExpiredToken", Outcome::kDenied},
      {kGetAny, 403, "ExpiredToken", Outcome::kDenied},
      {kGetAny, 403, "InvalidAccessKeyId", Outcome::kDenied},
      {kGetAny, 403, "RequestTimeTooSkewed", Outcome::kSkewed},
      // An operator has to change something.
      {kGetAny, 403, "AccessDenied", Outcome::kMisconfigured},
      {kGetAny, 403, "", Outcome::kMisconfigured},
      {kGetAny, 401, "", Outcome::kMisconfigured},
      {kGetAny, 403, "SignatureDoesNotMatch", Outcome::kMisconfigured},
      {kGetAny, 400, "AuthorizationHeaderMalformed", Outcome::kMisconfigured},
      {kGetAny, 400, "Unheard", Outcome::kMisconfigured},
      {kGetAny, 301, "PermanentRedirect", Outcome::kMisconfigured},
      {kGetAny, 307, "TemporaryRedirect", Outcome::kMisconfigured},
      {kGetAny, 302, "NoSuchKey", Outcome::kMisconfigured},
      // No room.
      {kPutAny, 507, "", Outcome::kFull},
      {kPutAny, 507, "XMinioStorageFull", Outcome::kFull},
      {kPutAny, 403, "QuotaExceeded", Outcome::kFull},
      // This request alone.
      {kPutAny, 400, "EntityTooLarge", Outcome::kRefused},
      {kPutAny, 413, "", Outcome::kRefused},
  });
}

TEST_CASE("an outcome is an answer or a failure and never both, and a miss is an answer") {
  std::set<absl::string_view> names;
  for (size_t i = 0; i < kObjectOutcomes; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    INFO(NameOf(outcome));
    names.insert(NameOf(outcome));
    const Consequence consequence = ConsequenceOf(outcome);
    CHECK(consequence.serves + consequence.fails + consequence.opens + consequence.slows +
              consequence.renews <=
          1);
    const absl::Status status = ToStatus(outcome, "get of x", {});
    CHECK(status.ok() == (outcome == Outcome::kOk || outcome == Outcome::kExists));
    if (consequence.again || consequence.renews) CHECK(absl::IsUnavailable(status));
  }
  CHECK(names.size() == kObjectOutcomes);
  CHECK(ConsequenceOf(Outcome::kAbsent).serves);
  CHECK(absl::IsNotFound(ToStatus(Outcome::kAbsent, "x", {})));
  CHECK(absl::IsDataLoss(ToStatus(Outcome::kShort, "x", {})));
  CHECK(ToStatus(Outcome::kThrottled, "get", {"SlowDown", "Reduce", "R1"}).message() ==
        "get: throttled, SlowDown: Reduce (request R1)");
}

TEST_CASE("the error of a body is cut and made printable, and a page of a proxy says none") {
  CHECK(ParseS3Error("<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>The specified "
                     "key does not exist.</Message><Key>k</Key><RequestId>R</RequestId></Error>") ==
        ObjectError{"NoSuchKey", "The specified key does not exist.", "R"});
  const ObjectError long_one = ParseS3Error("<Error><Code>" + std::string(1000, 'c') +
                                            "</Code><Message>a&#10;b\xff" +
                                            std::string(1000, 'm') + "</Message></Error>");
  CHECK(long_one.code == std::string(64, 'c'));
  CHECK(long_one.message.substr(0, 5) == "a?b?m");
  CHECK(long_one.message.size() == 256);
  for (const std::string& body :
       {std::string(), std::string("<html><body>502 Bad Gateway</body></html>"),
        std::string("<Error><Code>SlowDown</Code>"), std::string("{}"),
        "<Error><Code>SlowDown</Code><Message>" + std::string(70'000, 'm') +
            "</Message></Error>"}) {
    CHECK(ParseS3Error(body) == ObjectError{});
  }
}

TEST_CASE("a redirect names the bucket's endpoint and region, by its body or its head") {
  const std::string told = "<Error><Code>TemporaryRedirect</Code><Message>Elsewhere.</Message>"
                           "<Endpoint>bucket.s3.eu-west-3.amazonaws.com</Endpoint></Error>";
  const auto read = [](int status, HttpHeaders headers, std::string body) {
    HttpAnswer answer;
    answer.head.status = status;
    answer.head.headers = std::move(headers);
    answer.text = std::move(body);
    return ReadAnswer({ObjectVerb::kPut}, answer, UnixSeconds(0)).error;
  };
  const ObjectError both = read(307,
                                {{"Location", "http://bucket.s3.eu-west-3.amazonaws.com/n"},
                                 {"x-amz-bucket-region", "eu-west-3"}},
                                told);
  CHECK(both.message ==
        "Elsewhere.; Endpoint: bucket.s3.eu-west-3.amazonaws.com; Region: eu-west-3");
  CHECK(absl::StrContains(AdviceFor(both.code), "g4.region and g4.url"));
  const ObjectError head = read(307, {{"location", "https://sso.example/login"}}, "<html/>");
  CHECK(head.message == "Endpoint: https://sso.example/login");
  CHECK(read(307, {{"location", "a\nb"}}, "").message.empty());
  CHECK(read(403, {{"x-amz-bucket-region", "eu-west-3"}}, "").message.empty());
  CHECK(ParseS3Error("<Error><Code>AuthorizationHeaderMalformed</Code><Message>No.</Message>"
                     "<Region>eu-west-3</Region></Error>")
            .message == "No.; Region: eu-west-3");
  for (const char* code : {"HTTP 301", "HTTP 302", "HTTP 307", "HTTP 308", "PermanentRedirect"}) {
    CHECK_FALSE(AdviceFor(code).empty());
  }
}

TEST_CASE("a range of an answer is read, and one that cannot be is none") {
  CHECK(ParseContentRange("bytes 0-4095/8192") == ContentRange{0, 4095, 8192});
  CHECK(ParseContentRange("bytes 5-5/*") == ContentRange{5, 5, std::nullopt});
  for (const char* text :
       {"", "bytes", "bytes 0-4095", "bytes */8192", "bytes 5-4/10", "bytes 0-10/10", "0-1/2",
        "bytes 0-1/2/3", "bytes -1/2", "bytes 0-/2", "bytes +0-1/2", "bytes 0 - 1/2",
        "bytes 0-99999999999999999999/*", "items 0-1/2"}) {
    INFO(text);
    CHECK_FALSE(ParseContentRange(text).has_value());
  }
}

TEST_CASE("Retry-After is seconds or a date, and at most a day") {
  using std::chrono::seconds;
  const UnixSeconds now(1369353600);
  CHECK(ParseRetryAfter("0", now) == seconds(0));
  CHECK(ParseRetryAfter("120", now) == seconds(120));
  CHECK(ParseRetryAfter("99999999", now) == seconds(86400));
  CHECK(ParseRetryAfter("Fri, 24 May 2013 00:00:30 GMT", now) == seconds(30));
  CHECK(ParseRetryAfter("Thu, 23 May 2013 00:00:30 GMT", now) == seconds(0));
  CHECK(ParseRetryAfter("Fri, 24 May 2033 00:00:30 GMT", now) == seconds(86400));
  for (const char* text : {"", "-1", "1.5", "soon", "99999999999999999999999"}) {
    CHECK_FALSE(ParseRetryAfter(text, now).has_value());
  }
}

TEST_CASE("an ETag that If-Match may carry is strong, quoted, printable and short") {
  CHECK(ParseStrongETag("\"d41d8cd98f00b204e9800998ecf8427e-3\"").has_value());
  CHECK(ParseStrongETag("\"\"").has_value());
  for (const std::string& text :
       {std::string(), std::string("abc"), std::string("W/\"abc\""), std::string("\""),
        std::string("\"a\"b\""), std::string("\"a b\""), std::string("\"a\n\""),
        "\"" + std::string(127, 'a') + "\""}) {
    CHECK_FALSE(ParseStrongETag(text).has_value());
  }
}

}  // namespace kvkeep
