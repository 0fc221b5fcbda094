#include "tiers/objects/service_key_source.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tiers/base/bytes.h"
#include "tiers/base/private_file.h"
#include "tiers/base/status_macros.h"
#include "tiers/objects/key_answers.h"
#include "tiers/objects/uri_encode.h"

namespace kvkeep {
namespace {

constexpr size_t kMaxRoleBytes = 2048, kMaxSessionNameBytes = 64, kMaxRegionNameBytes = 63;
constexpr size_t kMaxRoleNameBytes = 128;  // of an instance
constexpr absl::string_view kAgentOfTasks = "http://169.254.170.2";
constexpr absl::string_view kTokenLife = "21600";  // seconds: the longest there is

std::string Read(const KeyEnvironment& environment, const char* name) {
  const char* const value = environment(name);
  return value == nullptr ? "" : value;
}

absl::Status Misses(absl::string_view source, absl::string_view variable) {
  return absl::NotFoundError(
      absl::StrCat("no keys by ", source, ": the daemon's environment has no ", variable));
}

bool IsVisible(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
}

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isprint(static_cast<unsigned char>(c));
  });
}

// Checks a field that is never shown: at most `most` visible characters.
absl::Status CheckWord(absl::string_view name, absl::string_view text, size_t most) {
  if (text.size() <= most && IsVisible(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be 1 to ", most, " characters of ASCII without blanks"));
}

// Reads a token that a platform renews. The platform sets its mode, too: we cannot choose its
// readers, but refuse it if others could change it.
absl::StatusOr<std::string> ReadToken(const std::string& file) {
  KVKEEP_ASSIGN_OR_RETURN(std::string text,
                          ReadPrivateFile(file, kMaxServiceTokenBytes, Secrecy::kPublic));
  const std::string token(absl::StripAsciiWhitespace(text));
  OPENSSL_cleanse(text.data(), text.size());
  if (token.empty() || !IsPrintable(token)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": is empty, or holds a line break or a character that is not ASCII"));
  }
  return token;
}

absl::Status Said(absl::string_view service, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(service, ": ", status.message()));
}

absl::Status Answers(absl::string_view service, int status, absl::string_view code = "") {
  return absl::UnavailableError(
      absl::StrCat(service, ": answers ", status, code.empty() ? "" : " ", code));
}

// Takes the text, and wipes it.
template <typename Parse>
absl::StatusOr<S3Keys> Parsed(absl::string_view service, std::string text, Parse parse) {
  absl::StatusOr<S3Keys> keys = parse(text);
  OPENSSL_cleanse(text.data(), text.size());
  if (!keys.ok()) return Said(service, keys.status());
  return keys;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WebIdentityKeySource>> WebIdentityKeySource::Make(
    const KeyEnvironment& environment, const std::string& region,
    std::unique_ptr<KeyService> service) {
  std::unique_ptr<WebIdentityKeySource> source(new WebIdentityKeySource(std::move(service)));
  source->token_file_ = Read(environment, "AWS_WEB_IDENTITY_TOKEN_FILE");
  if (source->token_file_.empty()) return Misses("web identity", "AWS_WEB_IDENTITY_TOKEN_FILE");
  source->role_ = Read(environment, "AWS_ROLE_ARN");
  if (source->role_.empty()) return Misses("web identity", "AWS_ROLE_ARN");
  KVKEEP_RETURN_IF_ERROR(CheckWord("AWS_ROLE_ARN", source->role_, kMaxRoleBytes));
  source->session_ = Read(environment, "AWS_ROLE_SESSION_NAME");
  if (source->session_.empty()) source->session_ = "kvkeep";
  KVKEEP_RETURN_IF_ERROR(
      CheckWord("AWS_ROLE_SESSION_NAME", source->session_, kMaxSessionNameBytes));
  source->url_ = Read(environment, "AWS_ENDPOINT_URL_STS");
  if (!source->url_.empty()) {
    KVKEEP_RETURN_IF_ERROR(CheckKeyServiceUrl("AWS_ENDPOINT_URL_STS", source->url_));
    return source;
  }
  std::string at = Read(environment, "AWS_REGION");
  if (at.empty()) at = Read(environment, "AWS_DEFAULT_REGION");
  if (at.empty()) at = region;
  const bool known = std::all_of(at.begin(), at.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
  });
  if (!known || at.empty() || at.size() > kMaxRegionNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("AWS_REGION must be 1 to ", kMaxRegionNameBytes, " of a-z, 0-9 and '-'"));
  }
  source->url_ = absl::StrCat("https://sts.", at, ".amazonaws.com",
                              absl::StartsWith(at, "cn-") ? ".cn/" : "/");
  return source;
}

absl::StatusOr<S3Keys> WebIdentityKeySource::Ask() {
  KVKEEP_ASSIGN_OR_RETURN(std::string token, ReadToken(token_file_));
  // Sent in the body, as URLs are written to logs on the way.
  std::string form = EncodeUriQuery({{"Action", "AssumeRoleWithWebIdentity"},
                                     {"RoleArn", role_},
                                     {"RoleSessionName", session_},
                                     {"Version", "2011-06-15"},
                                     {"WebIdentityToken", token}});
  OPENSSL_cleanse(token.data(), token.size());
  absl::StatusOr<KeyService::Answer> answer = service_->Ask(
      {.method = "POST",
       .url = url_,
       .headers = {{"Content-Type", "application/x-www-form-urlencoded"}},
       .body = {AsBytes(form)}});
  OPENSSL_cleanse(form.data(), form.size());
  if (!answer.ok()) return Said("STS", answer.status());
  if (answer->status != 200) return Answers("STS", answer->status, StsErrorCode(answer->text));
  return Parsed("STS", std::move(answer->text), &ParseStsKeys);
}

absl::StatusOr<std::unique_ptr<ContainerKeySource>> ContainerKeySource::Make(
    const KeyEnvironment& environment, std::unique_ptr<KeyService> service) {
  std::unique_ptr<ContainerKeySource> source(new ContainerKeySource(std::move(service)));
  constexpr const char* kRelative = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
  constexpr const char* kFull = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
  const std::string relative = Read(environment, kRelative);
  source->url_ = Read(environment, kFull);
  if (!relative.empty()) {
    if (relative[0] != '/') {
      return absl::InvalidArgumentError(absl::StrCat(kRelative, " must begin with '/'"));
    }
    source->url_ = absl::StrCat(kAgentOfTasks, relative);
  } else if (source->url_.empty()) {
    return Misses("the container's agent", absl::StrCat(kRelative, " and no ", kFull));
  }
  KVKEEP_RETURN_IF_ERROR(
      CheckKeyServiceUrl(relative.empty() ? kFull : kRelative, source->url_));
  source->token_file_ = Read(environment, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  source->token_ = Read(environment, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (source->token_.size() > kMaxServiceTokenBytes || !IsPrintable(source->token_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("AWS_CONTAINER_AUTHORIZATION_TOKEN must be ", kMaxServiceTokenBytes,
                     " characters at most, all of them printable ASCII"));
  }
  return source;
}

absl::StatusOr<S3Keys> ContainerKeySource::Ask() {
  std::string token = token_;
  if (!token_file_.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(token, ReadToken(token_file_));
  }
  HttpRequest request{.url = url_};
  if (!token.empty()) request.headers.push_back({"Authorization", std::move(token)});
  constexpr absl::string_view kService = "the container's agent";
  absl::StatusOr<KeyService::Answer> answer = service_->Ask(std::move(request));
  if (!answer.ok()) return Said(kService, answer.status());
  if (answer->status != 200) return Answers(kService, answer->status);
  return Parsed(kService, std::move(answer->text), &ParseMetadataKeys);
}

absl::StatusOr<std::unique_ptr<InstanceKeySource>> InstanceKeySource::Make(
    const KeyEnvironment& environment, std::unique_ptr<KeyService> service) {
  if (absl::EqualsIgnoreCase(Read(environment, "AWS_EC2_METADATA_DISABLED"), "true")) {
    return absl::FailedPreconditionError(
        "no keys by the instance's metadata: AWS_EC2_METADATA_DISABLED is true");
  }
  std::unique_ptr<InstanceKeySource> source(new InstanceKeySource(std::move(service)));
  constexpr const char* kEndpoint = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
  source->root_ = Read(environment, kEndpoint);
  if (source->root_.empty()) {
    const std::string mode = Read(environment, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    source->root_ = absl::EqualsIgnoreCase(mode, "IPv6") ? "http://[fd00:ec2::254]"
                                                         : "http://169.254.169.254";
  }
  KVKEEP_RETURN_IF_ERROR(CheckKeyServiceUrl(kEndpoint, source->root_));
  source->root_ = std::string(absl::StripSuffix(source->root_, "/"));
  return source;
}

absl::StatusOr<std::string> InstanceKeySource::AskFor(absl::string_view what,
                                                      HttpRequest request) {
  const std::string service = absl::StrCat("the instance's metadata: ", what);
  absl::StatusOr<KeyService::Answer> answer = service_->Ask(std::move(request));
  if (!answer.ok()) return Said(service, answer.status());
  if (answer->status != 200) return Answers(service, answer->status);
  return std::move(answer->text);
}

absl::StatusOr<S3Keys> InstanceKeySource::Ask() {
  KVKEEP_ASSIGN_OR_RETURN(
      const std::string token,
      AskFor("a token", {.method = "PUT",
                         .url = absl::StrCat(root_, "/latest/api/token"),
                         .headers = {{"X-aws-ec2-metadata-token-ttl-seconds",
                                      std::string(kTokenLife)}}}));
  KVKEEP_RETURN_IF_ERROR(
      CheckWord("the instance's metadata: a token", token, kMaxServiceTokenBytes));
  const HttpHeaders headers = {{"X-aws-ec2-metadata-token", token}};
  const std::string roles = absl::StrCat(root_, "/latest/meta-data/iam/security-credentials/");
  KVKEEP_ASSIGN_OR_RETURN(const std::string said,
                          AskFor("the role", {.url = roles, .headers = headers}));
  // The answer has one role a line; an instance has one at most.
  const std::vector<absl::string_view> lines = absl::StrSplit(said, absl::MaxSplits('\n', 1));
  const absl::string_view role = absl::StripAsciiWhitespace(lines[0]);
  KVKEEP_RETURN_IF_ERROR(CheckWord("the instance's metadata: the role", role, kMaxRoleNameBytes));
  KVKEEP_ASSIGN_OR_RETURN(
      std::string keys,
      AskFor("the keys", {.url = absl::StrCat(roles, EncodeUriPart(role)), .headers = headers}));
  return Parsed("the instance's metadata", std::move(keys), &ParseMetadataKeys);
}

}  // namespace kvkeep
