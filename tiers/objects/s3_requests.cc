#include "tiers/objects/s3_requests.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// Signs `headers`, and adds `unsigned_headers`.
HttpRequest SignedRequest(const S3Target& target, const SigningContext& signing, const char* method,
                          absl::string_view payload_hash, HttpHeaders headers,
                          const HttpHeaders& unsigned_headers) {
  KVKEEP_CHECK(signing.signer != nullptr && signing.keys != nullptr);
  headers.push_back({"Host", target.host});
  signing.signer->Sign(signing.keys, signing.at, method, target.path, target.query, payload_hash,
                       &headers);
  headers.insert(headers.end(), unsigned_headers.begin(), unsigned_headers.end());
  HttpRequest request;
  request.method = method;
  request.url = target.url();
  request.headers = std::move(headers);
  return request;
}

std::string Crc32cHeader(uint32_t crc) {
  const std::array<char, 4> bytes = {static_cast<char>(crc >> 24), static_cast<char>(crc >> 16),
                                     static_cast<char>(crc >> 8), static_cast<char>(crc)};
  return absl::Base64Escape(absl::string_view(bytes.data(), bytes.size()));
}

ObjectOutcome JudgeWay(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded: return ObjectOutcome::kLate;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted: return ObjectOutcome::kCancelled;
    // A certificate that is not trusted, or an invalid address.
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument: return ObjectOutcome::kMisconfigured;
    default: return ObjectOutcome::kBroken;
  }
}

// Returns the error in the body, and the bucket's place from a redirect's head.
ObjectError ErrorOf(const HttpAnswer& answer) {
  ObjectError error = ParseS3Error(answer.text);
  if (answer.head.status >= 400) return error;
  const std::pair<const char*, const char*> kTold[] = {{"location", "Endpoint: "},
                                                       {"x-amz-bucket-region", "Region: "}};
  for (const auto& [header, name] : kTold) {
    const absl::string_view value = FindHeader(answer.head.headers, header).substr(0, 256);
    const bool shown = std::all_of(value.begin(), value.end(), absl::ascii_isgraph);
    if (value.empty() || !shown || absl::StrContains(error.message, name)) continue;
    absl::StrAppend(&error.message, error.message.empty() ? "" : "; ", name, value);
  }
  return error;
}

}  // namespace

HttpRequest MakeGet(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                    const GetObject& get) {
  HttpHeaders conditions;
  if (get.range.has_value()) {
    KVKEEP_CHECK(get.range->bytes > 0);
    KVKEEP_CHECK(get.range->first <= UINT64_MAX - get.range->bytes);
    conditions.push_back({"Range", absl::StrCat("bytes=", get.range->first, "-",
                                                get.range->first + get.range->bytes - 1)});
  }
  if (!get.if_match.empty()) conditions.push_back({"If-Match", get.if_match});
  return SignedRequest(urls.Object(endpoint, get.name), signing, "GET", kEmptyPayloadHash, {},
                       conditions);
}

HttpRequest MakePut(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                    const PutObject& put) {
  HttpHeaders headers;
  if (put.crc32c.has_value()) {
    headers.push_back({"x-amz-checksum-crc32c", Crc32cHeader(*put.crc32c)});
  }
  HttpHeaders conditions;
  if (put.if_absent) conditions.push_back({"If-None-Match", "*"});
  HttpRequest request = SignedRequest(urls.Object(endpoint, put.name), signing, "PUT",
                                      kUnsignedPayload, std::move(headers), conditions);
  request.body = put.body;
  return request;
}

HttpRequest MakeDelete(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                       const std::string& name) {
  return SignedRequest(urls.Object(endpoint, name), signing, "DELETE", kEmptyPayloadHash, {}, {});
}

HttpRequest MakeList(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                     const ListObjects& list) {
  UriQuery query = {{"list-type", "2"},
                    {"max-keys", absl::StrCat(ObjectListing::kMaxObjects)},
                    {"prefix", absl::StrCat(urls.prefix(), list.prefix)}};
  if (!list.token.empty()) query.emplace_back("continuation-token", list.token);
  return MakeBucketQuery(urls, endpoint, signing, query);
}

HttpRequest MakeBucketQuery(const S3Urls& urls, EndpointNumber endpoint,
                            const SigningContext& signing, const UriQuery& query) {
  return SignedRequest(urls.Bucket(endpoint, query), signing, "GET", kEmptyPayloadHash, {}, {});
}

absl::Status CheckGetHead(const std::optional<ByteRange>& range, const HttpHead& head) {
  const auto refuse = [](absl::string_view what) {
    return absl::DataLossError(absl::StrCat("an answer to a read ", what));
  };
  if (head.status == 200) {
    if (range.has_value() && range->first != 0) return refuse("is of the whole object");
    return absl::OkStatus();
  }
  if (!range.has_value()) return refuse("is of a part, and all was asked for");
  const auto is = ParseContentRange(FindHeader(head.headers, "content-range"));
  if (!is.has_value()) return refuse("does not say of which part it is");
  if (is->first != range->first || is->last >= range->first + range->bytes) {
    return refuse("is of another part");
  }
  const uint64_t bytes = is->last - is->first + 1;
  if (head.content_bytes.has_value() && *head.content_bytes != bytes) {
    return refuse("says two lengths");
  }
  // Fewer bytes than asked for are right only at the object's end.
  if (bytes < range->bytes && is->object_bytes != is->last + 1) return refuse("is too short");
  return absl::OkStatus();
}

ObjectHead ReadObjectHead(const HttpHead& head) {
  ObjectHead read;
  read.etag = ParseStrongETag(FindHeader(head.headers, "etag")).value_or("");
  read.modified = ParseHttpDate(FindHeader(head.headers, "last-modified"));
  read.answered = ParseHttpDate(FindHeader(head.headers, "date"));
  if (head.status == 200) read.object_bytes = head.content_bytes;
  if (head.status != 206) return read;
  const auto range = ParseContentRange(FindHeader(head.headers, "content-range"));
  if (range.has_value()) read.object_bytes = range->object_bytes;
  return read;
}

S3Answer ReadAnswer(const ObjectQuestion& question, const HttpAnswer& answer, UnixSeconds now) {
  S3Answer read;
  const HttpHeaders& headers = answer.head.headers;
  if (!answer.status.ok()) {
    read.outcome = JudgeWay(answer.status);
    read.connection_failed = !answer.connected;
    read.slow = answer.slow && read.outcome == ObjectOutcome::kLate;
    return read;
  }
  read.head = ReadObjectHead(answer.head);
  read.retry_after =
      ParseRetryAfter(FindHeader(headers, "retry-after"), read.head.answered.value_or(now));
  if (answer.head.status >= 300) read.error = ErrorOf(answer);
  read.outcome = Judge(question, answer.head.status, read.error.code);
  if (read.outcome != ObjectOutcome::kOk || question.verb != ObjectVerb::kGet) return read;
  uint64_t promised = answer.head.content_bytes.value_or(answer.body_bytes);
  if (answer.head.status == 206) {
    const auto range = ParseContentRange(FindHeader(headers, "content-range"));
    if (range.has_value()) promised = range->last - range->first + 1;
  }
  // libcurl sees to Content-Length; a chunked body may end well and be another length.
  if (answer.body_bytes != promised) read.outcome = ObjectOutcome::kBroken;
  return read;
}

}  // namespace kvkeep
