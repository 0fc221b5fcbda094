#include "tests/fakes/fake_s3.h"

#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <absl/time/time.h>

#include "tiers/base/bytes.h"
#include "tiers/base/crc32c.h"

namespace kvkeep {
namespace {

constexpr absl::string_view kBucketPath = "/bucket/", kRegion = "us-east-1";

std::string Decode(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      decoded += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

std::string QueryValue(absl::string_view query, absl::string_view name) {
  for (absl::string_view part : absl::StrSplit(query, '&')) {
    if (absl::ConsumePrefix(&part, absl::StrCat(name, "="))) return Decode(part);
  }
  return "";
}

std::string HttpDateOf(UnixSeconds at) {
  return absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::FromUnixSeconds(at.value()),
                          absl::UTCTimeZone());
}

// "20130524T000000Z"
std::optional<UnixSeconds> ParseAmzTime(absl::string_view text) {
  if (text.size() != 16) return std::nullopt;
  return ParseIsoTime(absl::StrCat(text.substr(0, 4), "-", text.substr(4, 2), "-",
                                   text.substr(6, 2), "T", text.substr(9, 2), ":",
                                   text.substr(11, 2), ":", text.substr(13, 2), "Z"));
}

std::string Escaped(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  }
  return escaped;
}

}  // namespace

UnixSeconds FakeS3::Now() const {
  return UnixSeconds(static_cast<int64_t>(clock_.UnixMicros() / 1'000'000) + clock_ahead.count());
}

ScriptedAnswer FakeS3::Refuse(int status, absl::string_view code) const {
  return {.status = status,
          .headers = {{"Date", HttpDateOf(Now())}},
          .body = absl::StrCat("<Error><Code>", code, "</Code><Message>said ", code,
                               "</Message><RequestId>R1</RequestId></Error>")};
}

ScriptedAnswer FakeS3::Serve(const HttpRequest& request, std::string body) {
  MutexLock lock(&mu_);
  ++served_;
  Parsed parsed{.method = request.method, .headers = request.headers, .body = std::move(body)};
  absl::string_view rest = request.url;
  if (const size_t scheme = rest.find("://"); scheme != absl::string_view::npos) {
    rest.remove_prefix(scheme + 3);
  }
  rest.remove_prefix(std::min(rest.find('/'), rest.size()));
  const std::vector<absl::string_view> halves = absl::StrSplit(rest, absl::MaxSplits('?', 1));
  parsed.path = std::string(halves[0]);
  if (halves.size() > 1) parsed.query = std::string(halves[1]);
  absl::string_view key = parsed.path;
  if (!absl::ConsumePrefix(&key, kBucketPath)) return Refuse(404, "NoSuchBucket");
  parsed.key = Decode(key);
  if (auto refused = CheckSignature(parsed)) return *std::move(refused);
  if (parsed.method == "GET") return parsed.key.empty() ? List(parsed) : Get(parsed);
  if (parsed.method == "PUT") return Put(parsed);
  if (parsed.method != "DELETE") return Refuse(405, "MethodNotAllowed");
  objects_.erase(parsed.key);
  return {.status = 204, .headers = {{"Date", HttpDateOf(Now())}}};
}

std::optional<ScriptedAnswer> FakeS3::CheckSignature(const Parsed& request) const {
  const std::string authorization(FindHeader(request.headers, "authorization"));
  const auto at = ParseAmzTime(FindHeader(request.headers, "x-amz-date"));
  if (!at.has_value()) return Refuse(403, "AccessDenied");
  if (std::abs(at->value() - Now().value()) > 900) return Refuse(403, "RequestTimeTooSkewed");
  if (!absl::StrContains(authorization, absl::StrCat("Credential=", keys_->access_key_id, "/"))) {
    return Refuse(403, "InvalidAccessKeyId");
  }
  if (expired_) return Refuse(400, "ExpiredToken");
  if (FindHeader(request.headers, "x-amz-security-token") != keys_->session_token) {
    return Refuse(400, "InvalidToken");
  }
  const size_t names_at = authorization.find("SignedHeaders=");
  if (names_at == std::string::npos) return Refuse(403, "AccessDenied");
  const std::string names =
      authorization.substr(names_at + 14, authorization.find(',', names_at) - names_at - 14);
  HttpHeaders signed_headers;
  for (const absl::string_view name : absl::StrSplit(names, ';')) {
    signed_headers.push_back({std::string(name), std::string(FindHeader(request.headers, name))});
  }
  const std::string payload(FindHeader(request.headers, "x-amz-content-sha256"));
  SigV4Signer signer{std::string(kRegion)};
  if (signer.Authorization(keys_, *at,
                           {request.method, request.path, request.query, signed_headers,
                            payload}) != authorization) {
    return Refuse(403, "SignatureDoesNotMatch");
  }
  return std::nullopt;
}

ScriptedAnswer FakeS3::Get(const Parsed& request) {
  const auto at = objects_.find(request.key);
  if (at == objects_.end()) return Refuse(404, "NoSuchKey");
  const Object& object = at->second;
  const absl::string_view if_match = FindHeader(request.headers, "if-match");
  if (!if_match.empty() && if_match != object.etag && !ignores_conditions) {
    return Refuse(412, "PreconditionFailed");
  }
  ScriptedAnswer answer{.headers = {{"Date", HttpDateOf(Now())},
                                    {"ETag", object.etag},
                                    {"Last-Modified", HttpDateOf(object.modified)}},
                        .body = object.body};
  absl::string_view range = FindHeader(request.headers, "range");
  if (range.empty() || ignores_ranges) return answer;
  absl::ConsumePrefix(&range, "bytes=");
  const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
  uint64_t first = 0, last = 0;
  if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &first) ||
      !absl::SimpleAtoi(ends[1], &last) || first >= object.body.size()) {
    return Refuse(416, "InvalidRange");
  }
  last = std::min<uint64_t>(last, object.body.size() - 1);
  answer.status = 206;
  answer.headers.push_back(
      {"Content-Range", absl::StrCat("bytes ", first, "-", last, "/", object.body.size())});
  answer.body = object.body.substr(first, last - first + 1);
  return answer;
}

ScriptedAnswer FakeS3::Put(const Parsed& request) {
  const bool conditional = FindHeader(request.headers, "if-none-match") == "*";
  if (conditional && !knows_conditions) return Refuse(501, "NotImplemented");
  if (conditional && !ignores_conditions && objects_.contains(request.key)) {
    return Refuse(412, "PreconditionFailed");
  }
  const absl::string_view checksum = FindHeader(request.headers, "x-amz-checksum-crc32c");
  if (!checksum.empty()) {
    const uint32_t crc = Crc32c(AsBytes(request.body));
    const std::string bytes = {static_cast<char>(crc >> 24), static_cast<char>(crc >> 16),
                               static_cast<char>(crc >> 8), static_cast<char>(crc)};
    if (absl::Base64Escape(bytes) != checksum) return Refuse(400, "BadDigest");
  }
  Store(request.key, request.body);
  return {.headers = {{"Date", HttpDateOf(Now())}, {"ETag", objects_[request.key].etag}}};
}

ScriptedAnswer FakeS3::List(const Parsed& request) {
  if (knows_settings) {
    if (request.query == "lifecycle=") return {.body = lifecycle};
    if (request.query == "versioning=") return {.body = "<VersioningConfiguration/>"};
    if (request.query == "object-lock=") return Refuse(404, "ObjectLockConfigurationNotFoundError");
  }
  const std::string prefix = QueryValue(request.query, "prefix");
  const std::string token = QueryValue(request.query, "continuation-token");
  std::string body = "<ListBucketResult>";
  size_t count = 0;
  bool more = false;
  std::string last;
  for (auto at = objects_.upper_bound(token); at != objects_.end(); ++at) {
    if (!absl::StartsWith(at->first, prefix)) continue;
    if (count++ == page) {
      more = true;
      break;
    }
    last = at->first;
    absl::StrAppend(&body, "<Contents><Key>", Escaped(last), "</Key><LastModified>",
                    absl::FormatTime("%Y-%m-%dT%H:%M:%S.000Z",
                                     absl::FromUnixSeconds(at->second.modified.value()),
                                     absl::UTCTimeZone()),
                    "</LastModified><Size>", at->second.body.size(), "</Size></Contents>");
  }
  absl::StrAppend(&body, "<IsTruncated>", more ? "true" : "false", "</IsTruncated>");
  if (more) {
    absl::StrAppend(&body, "<NextContinuationToken>", Escaped(last), "</NextContinuationToken>");
  }
  return {.headers = {{"Date", HttpDateOf(Now())}}, .body = body + "</ListBucketResult>"};
}

void FakeS3::Store(const std::string& key, std::string body) {
  objects_[key] = {std::move(body), absl::StrCat("\"v", ++versions_, "\""), Now()};
}

std::map<std::string, FakeS3::Object> FakeS3::objects() const {
  MutexLock lock(&mu_);
  return objects_;
}
void FakeS3::Change(const std::string& key, const std::string& body) {
  MutexLock lock(&mu_);
  Store(key, body);
}
void FakeS3::set_keys(SharedS3Keys keys) {
  MutexLock lock(&mu_);
  keys_ = std::move(keys);
}
void FakeS3::set_expired(bool expired) {
  MutexLock lock(&mu_);
  expired_ = expired;
}
uint64_t FakeS3::served() const {
  MutexLock lock(&mu_);
  return served_;
}

}  // namespace kvkeep
