// Keys from services, requested over sockets: STS, a container's agent, an instance's metadata.
#include "tiers/objects/service_key_source.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <future>
#include <map>
#include <thread>

#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/scripted_server.h"
#include "tiers/objects/curl_engine.h"

namespace kvkeep {
namespace {

constexpr absl::string_view kMetadataJson =
    R"({"Code": "Success", "RoleArn": "arn:x", "AccessKeyId": "ID", "SecretAccessKey": "SECRET",
        "Token": "TOKEN", "Expiration": "2040-01-02T03:04:05Z"})";
constexpr absl::string_view kStsXml =
    R"(<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
       <AssumeRoleWithWebIdentityResult><Audience>sts</Audience><Credentials>
       <AccessKeyId>ID</AccessKeyId><SecretAccessKey>SECRET</SecretAccessKey>
       <SessionToken>TOKEN</SessionToken><Expiration>2040-01-02T03:04:05Z</Expiration>
       </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>)";

struct AskedService {
  std::string head, body;
};

// Answers each request with a test's function, and keeps the requests.
class FakeKeyService {
 public:
  struct Says {
    int status = 200;
    std::string text;
  };
  using Script = std::function<Says(const std::string& head)>;

  explicit FakeKeyService(Script script) : script_(std::move(script)) {}
  std::string url(const std::string& path = "") const { return server_.url(path); }
  std::vector<AskedService> asked() const {
    MutexLock lock(&mu_);
    return asked_;
  }

 private:
  void Serve(ServedConnection& connection) {
    while (true) {
      const std::string head = connection.ReadHead();
      if (head.empty()) return;
      size_t bytes = 0;
      if (const size_t at = head.find("Content-Length: "); at != std::string::npos) {
        const size_t from = at + 16;
        REQUIRE(absl::SimpleAtoi(head.substr(from, head.find('\r', from) - from), &bytes));
      }
      const std::string body = connection.ReadBody(bytes);
      {
        MutexLock lock(&mu_);
        asked_.push_back({head, body});
      }
      const Says says = script_(head);
      if (!connection.Send(absl::StrCat("HTTP/1.1 ", says.status, " So\r\nContent-Length: ",
                                        says.text.size(), "\r\n\r\n", says.text))) {
        return;
      }
    }
  }

  const Script script_;
  mutable Mutex mu_;
  std::vector<AskedService> asked_ ABSL_GUARDED_BY(mu_);
  ScriptedServer server_{[this](ServedConnection& connection, int) { Serve(connection); }};
};

FakeKeyService::Script Always(int status, absl::string_view text) {
  return [status, text = std::string(text)](const std::string&) {
    return FakeKeyService::Says{status, text};
  };
}

// As EC2 has it: version 2 alone, and one role.
FakeKeyService::Script Instance(std::string keys) {
  return [keys](const std::string& head) -> FakeKeyService::Says {
    if (absl::StartsWith(head, "PUT /latest/api/token ")) {
      const bool life = absl::StrContains(head, "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n");
      return life ? FakeKeyService::Says{200, "IMDS-TOKEN"} : FakeKeyService::Says{400, ""};
    }
    if (!absl::StrContains(head, "X-aws-ec2-metadata-token: IMDS-TOKEN\r\n")) return {401, ""};
    constexpr absl::string_view kRoles = "GET /latest/meta-data/iam/security-credentials/";
    if (absl::StartsWith(head, absl::StrCat(kRoles, " "))) return {200, "a-role\n"};
    if (absl::StartsWith(head, absl::StrCat(kRoles, "a-role "))) return {200, keys};
    return {404, ""};
  };
}

using Variables = std::map<std::string, std::string>;

std::unique_ptr<KeyService> Curl() {
  return std::make_unique<KeyService>(CurlEngine::Make({.connections = 1}, RealClock()).value(),
                                      RealClock());
}
KeyEnvironment EnvironmentOf(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
}

template <typename Source>
absl::StatusOr<S3Keys> FetchFrom(absl::StatusOr<std::unique_ptr<Source>> source) {
  if (!source.ok()) return source.status();
  absl::StatusOr<S3Keys> keys = absl::InternalError("no answer");
  (*source)->Fetch([&keys](absl::StatusOr<S3Keys> told) { keys = std::move(told); });
  return keys;
}
absl::StatusOr<S3Keys> FromInstance(const Variables& variables) {
  return FetchFrom(InstanceKeySource::Make(EnvironmentOf(variables), Curl()));
}
absl::StatusOr<S3Keys> FromContainer(const Variables& variables) {
  return FetchFrom(ContainerKeySource::Make(EnvironmentOf(variables), Curl()));
}
absl::StatusOr<S3Keys> FromWebIdentity(const Variables& variables) {
  return FetchFrom(WebIdentityKeySource::Make(EnvironmentOf(variables), "eu-west-1", Curl()));
}

void CheckKeys(const absl::StatusOr<S3Keys>& keys) {
  INFO(keys.status());
  REQUIRE(keys.ok());
  CHECK(*keys == S3Keys{"ID", SecretText("SECRET"), "TOKEN", UnixSeconds(2'209'086'245)});
}

// Checks that it has nothing that only the service and kvkeep may know.
void CheckTellsNothing(const absl::Status& status) {
  for (const char* secret : {"SECRET", "TOKEN", "JWT"}) {
    CHECK_FALSE(absl::StrContains(status.ToString(), secret));
  }
}

void WriteToken(const std::string& path, const std::string& text, mode_t mode = 0644) {
  std::ofstream(path) << text;
  REQUIRE(chmod(path.c_str(), mode) == 0);
}

}  // namespace

TEST_CASE("an instance's metadata gives its role's keys, for a token that was fetched first") {
  FakeKeyService metadata(Instance(std::string(kMetadataJson)));
  CheckKeys(FromInstance({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url("/")}}));
  CHECK(metadata.asked().size() == 3);
}

TEST_CASE("metadata without a token, a role or keys is told of, and nothing of what it said") {
  struct Wrong {
    FakeKeyService::Script script;
    std::string says;
  };
  const auto only = [](const std::string& path, FakeKeyService::Says says) {
    return [=](const std::string& head) {
      if (absl::StrContains(head, path)) return says;
      return Instance(std::string(kMetadataJson))(head);
    };
  };
  const std::string roles = "/iam/security-credentials/ ", keys = "/security-credentials/a-role ";
  for (const Wrong& wrong :
       {Wrong{Always(403, "SECRET"), "the instance's metadata: a token: answers 403"},
        Wrong{Always(200, "TOK\x01"), "a token must be 1 to 16384 characters"},
        Wrong{only(roles, {404, "<html>SECRET"}), "the instance's metadata: the role: answers 404"},
        Wrong{only(roles, {200, "a role of TOKEN\n"}), "the role must be 1 to 128 characters"},
        Wrong{only(roles, {200, "\nSECRET"}), "the role must be 1 to 128 characters"},
        Wrong{only(keys, {500, "SECRET"}), "the instance's metadata: the keys: answers 500"},
        Wrong{only(keys, {200, "SECRET"}), "the keys that came are no JSON object"},
        Wrong{only(keys, {200, R"({"Code": "AssumeRoleUnauthorizedAccess"})"}),
              "says AssumeRoleUnauthorizedAccess in place of keys"},
        Wrong{only(keys, {200, R"({"AccessKeyId": "ID", "Token": "TOKEN"})"}),
              "the secret access key is empty"}}) {
    FakeKeyService metadata(wrong.script);
    const absl::Status status =
        FromInstance({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url()}}).status();
    INFO(status);
    CHECK(absl::StrContains(status.message(), wrong.says));
    CheckTellsNothing(status);
  }
  CHECK(absl::StrContains(FromInstance({{"AWS_EC2_METADATA_DISABLED", "True"}}).status().message(),
                          "AWS_EC2_METADATA_DISABLED is true"));
}

TEST_CASE("a container's agent gives keys to who shows the token that it gave, read anew") {
  FakeKeyService agent(Always(200, kMetadataJson));
  const ScratchDir dir;
  WriteToken(dir / "token", "JWT-one\n");
  const Variables variables = {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url("/v1/credentials")},
                               {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", dir / "token"},
                               {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "JWT-other"}};
  const auto source = ContainerKeySource::Make(EnvironmentOf(variables), Curl());
  REQUIRE(source.ok());
  (*source)->Fetch([](absl::StatusOr<S3Keys> keys) { CheckKeys(keys); });
  WriteToken(dir / "token", "JWT-two");
  (*source)->Fetch([](absl::StatusOr<S3Keys> keys) { CheckKeys(keys); });
  CheckKeys(FromContainer({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url("/x?y=z")},
                           {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic JWT three"}}));
  CheckKeys(FromContainer({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url("/open")}}));
  const std::vector<AskedService> asked = agent.asked();
  REQUIRE(asked.size() == 4);
  CHECK(absl::StartsWith(asked[0].head, "GET /v1/credentials HTTP"));
  CHECK(absl::StrContains(asked[0].head, "Authorization: JWT-one\r\n"));
  CHECK(absl::StrContains(asked[1].head, "Authorization: JWT-two\r\n"));
  CHECK(absl::StartsWith(asked[2].head, "GET /x?y=z HTTP"));
  CHECK(absl::StrContains(asked[2].head, "Authorization: Basic JWT three\r\n"));
  CHECK_FALSE(absl::StrContains(asked[3].head, "Authorization"));
}

TEST_CASE("a container's agent that refuses, or a token that cannot be read, is told of") {
  FakeKeyService agent(Always(403, R"({"code": "AccessDenied", "message": "JWT SECRET"})"));
  const Variables asks = {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url()},
                          {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "JWT"}};
  const absl::Status refused = FromContainer(asks).status();
  CHECK(refused.message() == "the container's agent: answers 403");

  const ScratchDir dir;
  Variables by_file = asks;
  by_file["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = dir / "token";
  CHECK(absl::StrContains(FromContainer(by_file).status().message(), "No such file"));
  WriteToken(dir / "token", "JWT", 0666);
  CHECK(absl::StrContains(FromContainer(by_file).status().message(), "0666"));
  WriteToken(dir / "token", "JWT\nX-Other: SECRET");
  const absl::Status broken = FromContainer(by_file).status();
  CHECK(absl::StrContains(broken.message(), "line break"));
  CheckTellsNothing(broken);
  CHECK(agent.asked().size() == 1);
}

TEST_CASE("keys are asked for in plain on this machine and its link alone") {
  for (const char* url :
       {"http://127.0.0.1/a", "http://127.9.9.9:80/a", "http://localhost:51679", "http://[::1]:1/",
        "http://169.254.170.2/v2", "http://169.254.170.23/v1", "http://[fd00:ec2::23]/v1",
        "http://169.254.169.254", "http://[fd00:ec2::254]:80", "https://keys.example/x"}) {
    INFO(url);
    CHECK(CheckKeyServiceUrl("X", url).ok());
  }
  for (const char* url :
       {"http://keys.example/", "http://127.0.0.1.example/", "http://169.254.170.2@evil.example/",
        "http://evil.example\\@127.0.0.1/", "http://169.254.1.1/", "http://10.0.0.1", "http://[::2]/",
        "http://127.0.0.1#@evil.example", "ftp://127.0.0.1", "http:///x", "http://", "file:///etc/x",
        "http://127.0.0.1/\r\nX: y", "http://localhost.example/", "", "https://", "https:///x",
        "http://0x7f.1/", "http://127.1/"}) {
    INFO(url);
    const absl::Status status = CheckKeyServiceUrl("THE_NAME", url);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StartsWith(status.message(), "THE_NAME "));
  }
  CHECK(FromContainer({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://keys.example/"}})
            .status()
            .code() == absl::StatusCode::kInvalidArgument);
  CHECK(FromContainer({{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@evil.example/"}})
            .status()
            .code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("STS gives a role's keys for the token in a file, which goes in the body") {
  FakeKeyService sts(Always(200, kStsXml));
  const ScratchDir dir;
  WriteToken(dir / "token", "JWT/one+two\n", 0644);
  CheckKeys(FromWebIdentity({{"AWS_WEB_IDENTITY_TOKEN_FILE", dir / "token"},
                             {"AWS_ROLE_ARN", "arn:aws:iam::123:role/kv"},
                             {"AWS_ROLE_SESSION_NAME", "node-1"},
                             {"AWS_ENDPOINT_URL_STS", sts.url("/")}}));
  const std::vector<AskedService> asked = sts.asked();
  REQUIRE(asked.size() == 1);
  CHECK(absl::StartsWith(asked[0].head, "POST / HTTP/1.1\r\n"));
  CHECK(absl::StrContains(asked[0].head, "Content-Type: application/x-www-form-urlencoded\r\n"));
  CHECK_FALSE(absl::StrContains(asked[0].head, "JWT"));
  CHECK(asked[0].body ==
        "Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aaws%3Aiam%3A%3A123%3Arole%2Fkv&"
        "RoleSessionName=node-1&Version=2011-06-15&WebIdentityToken=JWT%2Fone%2Btwo");
}

TEST_CASE("STS's refusals are told of by their code, and nothing else of what it said") {
  const ScratchDir dir;
  WriteToken(dir / "token", "JWT");
  Variables variables = {{"AWS_WEB_IDENTITY_TOKEN_FILE", dir / "token"},
                         {"AWS_ROLE_ARN", "arn:aws:iam::123:role/kv"}};
  struct Refusal {
    int status;
    std::string text, says;
  };
  for (const Refusal& refusal :
       {Refusal{400,
                "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredTokenException</Code>"
                "<Message>JWT SECRET</Message></Error></ErrorResponse>",
                "STS: answers 400 ExpiredTokenException"},
        Refusal{403, "<ErrorResponse><Error><Code>JWT was SECRET</Code></Error></ErrorResponse>",
                "STS: answers 403"},
        Refusal{502, "<html>SECRET", "STS: answers 502"},
        Refusal{200, "<html>SECRET", "STS: the keys that came are no XML"},
        Refusal{200, "<a><SecretAccessKey>SECRET</SecretAccessKey></a>",
                "STS: the keys that came are in no answer to AssumeRoleWithWebIdentity"}}) {
    FakeKeyService sts(Always(refusal.status, refusal.text));
    variables["AWS_ENDPOINT_URL_STS"] = sts.url();
    const absl::Status status = FromWebIdentity(variables).status();
    CHECK(status.message() == refusal.says);
  }
  variables["AWS_ENDPOINT_URL_STS"] = "http://sts.example";
  CHECK(absl::StrContains(FromWebIdentity(variables).status().message(), "must begin with https"));
  variables.erase("AWS_ENDPOINT_URL_STS");
  variables["AWS_REGION"] = "x.evil.example/";
  CHECK(absl::StrContains(FromWebIdentity(variables).status().message(), "AWS_REGION"));
  variables["AWS_ROLE_ARN"] = "";
  CHECK(absl::StrContains(FromWebIdentity(variables).status().message(), "AWS_ROLE_ARN"));
}

TEST_CASE("a service that hangs is not waited for once the source is stopped") {
  ScriptedServer hangs([](ServedConnection& connection, int) { connection.AwaitClose(); });
  const Variables variables = {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", hangs.url()}};
  auto source = ContainerKeySource::Make(EnvironmentOf(variables), Curl());
  REQUIRE(source.ok());
  std::promise<absl::Status> told;
  {
    BackgroundKeySource background(*std::move(source));
    background.Fetch([&told](absl::StatusOr<S3Keys> keys) { told.set_value(keys.status()); });
    while (hangs.connections() == 0) std::this_thread::yield();
  }
  CHECK(absl::IsCancelled(told.get_future().get()));
}

}  // namespace kvkeep
