// Keys of a bucket from clouds' services: a daemon gets them, renews them, and writes none of them
// down.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "tests/e2e/engine.h"
#include "tests/e2e/g4_place.h"
#include "tests/fakes/scoped_variable.h"
#include "tests/fakes/served_bucket.h"
#include "tiers/base/clock.h"

namespace kvkeep::e2e {
namespace {

// A bucket that accepts only the current generation of keys, and every service that gives them out.
// Keys last a few seconds, so that they are renewed within a test.
class KeyedBucket {
 public:
  static constexpr int kLife = 12;  // seconds; renewed after some 10

  std::string bucket() const { return bucket_server_.url("/bucket"); }
  std::string services(const std::string& path = "") const { return services_.url(path); }
  size_t objects() const { return bucket_.objects().size(); }
  int given() const { return given_; }
  std::atomic<bool> gives{true};

  static std::string Secret(int number) { return absl::StrCat("HIDDENsecret", number); }
  static std::string Token(int number) { return absl::StrCat("HIDDENtoken", number); }

 private:
  std::string Json(const char* token) {
    const int number = ++given_;
    bucket_.set_keys(std::make_shared<const S3Keys>(
        S3Keys{absl::StrCat("ID", number), SecretText(Secret(number)), Token(number), {}}));
    return absl::StrCat(R"({"Version": 1, "AccessKeyId": "ID)", number,
                        R"(", "SecretAccessKey": ")", Secret(number), "\", \"", token, "\": \"",
                        Token(number), R"(", "Expiration": ")",
                        absl::FormatTime(absl::RFC3339_sec, absl::Now() + absl::Seconds(kLife),
                                         absl::UTCTimeZone()),
                        "\"}");
  }
  std::string Xml() {
    const std::string json = Json("SessionToken");
    const int number = given_;
    return absl::StrCat(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
        "<AccessKeyId>ID", number, "</AccessKeyId><SecretAccessKey>", Secret(number),
        "</SecretAccessKey><SessionToken>", Token(number), "</SessionToken><Expiration>",
        absl::FormatTime(absl::RFC3339_sec, absl::Now() + absl::Seconds(kLife),
                         absl::UTCTimeZone()),
        "</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
        "</AssumeRoleWithWebIdentityResponse>");
  }
  std::string Answer(const std::string& head, const std::string& body) {
    if (absl::StartsWith(head, "PUT /latest/api/token ")) return "HIDDENimds";
    if (absl::StrContains(head, "/security-credentials/ ")) return "a-role";
    if (absl::StartsWith(head, "POST ")) {
      return absl::StrContains(body, "WebIdentityToken=HIDDENjwt") ? Xml() : "";
    }
    return Json(absl::StartsWith(head, "GET /process") ? "SessionToken" : "Token");
  }
  void Serve(ServedConnection& connection) {
    for (std::string head; !(head = connection.ReadHead()).empty();) {
      size_t bytes = 0;
      if (const size_t at = head.find("Content-Length: "); at != std::string::npos) {
        bytes = std::stoul(head.substr(at + 16));
      }
      const std::string body = connection.ReadBody(bytes);
      const std::string text = gives ? Answer(head, body) : "HIDDENwords";
      connection.Send(absl::StrCat("HTTP/1.1 ", gives ? 200 : 503, " So\r\nContent-Length: ",
                                   text.size(), "\r\n\r\n", text));
    }
  }

  std::atomic<int> given_{0};
  FakeS3 bucket_{RealClock(),
                 std::make_shared<const S3Keys>(S3Keys{"ID0", SecretText("s"), "", {}})};
  ScriptedServer bucket_server_{
      [this](ServedConnection& connection, int) { ServeBucket(bucket_, connection); }};
  ScriptedServer services_{[this](ServedConnection& connection, int) { Serve(connection); }};
};

// Longer than a daemon at rest takes to begin a renewal, and to see how it ended.
constexpr milliseconds kRenewal{20'000};

struct KeysOfCloud {
  std::string source;
  std::map<std::string, std::string> variables;
  std::string process;
};

std::string ConfigOf(const KeyedBucket& cloud, const KeysOfCloud& keys, const std::string& dir) {
  return absl::StrCat("g4: {url: \"", cloud.bucket(), "\", credentials: ", keys.source,
                      keys.process.empty() ? "" : ", credential_process: '" + keys.process + "'",
                      ", admission: all, write_bytes_per_second: 1GiB}\n",
                      "fleet: {name: t, key_file: ", dir, "/key}\nlog: {level: debug}\n");
}

}  // namespace

TEST_CASE("a daemon signs with keys from each source, renews them, and writes none of them down") {
  const ScratchDir dir;
  WriteForOwner(dir / "key", FleetKeyOf('1'));
  WriteForOwner(dir / "token", "HIDDENjwt\n");
  for (const char* source : {"instance", "container", "web_identity", "process"}) {
    CAPTURE(source);
    KeyedBucket cloud;
    // The bucket refuses the earlier keys for a second before the newer ones come.
    WriteForOwner(dir / "keys", absl::StrCat("#!/bin/sh\necho HIDDENwords >&2\ncurl -s ",
                                             cloud.services("/process"), "\nsleep 1\n"));
    REQUIRE(chmod((dir / "keys").c_str(), 0700) == 0);
    KeysOfCloud keys{.source = source};
    if (keys.source == "instance") {
      keys.variables = {{"AWS_EC2_METADATA_SERVICE_ENDPOINT", cloud.services()}};
    } else if (keys.source == "container") {
      keys.variables = {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", cloud.services("/c")},
                        {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "HIDDENbasic"}};
    } else if (keys.source == "web_identity") {
      keys.variables = {{"AWS_WEB_IDENTITY_TOKEN_FILE", dir / "token"},
                        {"AWS_ROLE_ARN", "arn:aws:iam::1:role/r"},
                        {"AWS_ENDPOINT_URL_STS", cloud.services("/")}};
    } else {
      keys.process = dir / "keys";
    }
    std::list<ScopedVariable> inherited;  // by the daemon
    for (const auto& [name, value] : keys.variables) inherited.emplace_back(name.c_str(), value);
    Site site;
    site.settings.extra = ConfigOf(cloud, keys, dir.path());
    site.Start();
    Engine engine(site);
    CHECK(engine.PutAll(Chunks(1, 4, 400'000)));
    CHECK(Eventually([&] { return cloud.objects() == 4; }));
    // Begins another generation; the earlier one is refused by then.
    CHECK(Eventually([&] { return cloud.given() >= 2; }, kRenewal));
    CHECK(engine.PutAll(Chunks(11, 4, 400'000)));
    CHECK(Eventually([&] { return cloud.objects() == 8; }));
    cloud.gives = false;
    CHECK(site.AwaitLog("G4's keys could not be renewed", kRenewal));
    CHECK(engine.PutAll(Chunks(21, 4, 400'000)));  // with the earlier keys
    CHECK(Eventually([&] { return cloud.objects() == 12; }));
    CHECK(site.Status().counters().at("g4_failed_key_fetches") >= 1);
    cloud.gives = true;
    CHECK(site.AwaitLog("G4's keys are renewed again", kRenewal));
    CHECK(site.Stop().exit_status == 0);
    CHECK_FALSE(absl::StrContains(site.Log(), "HIDDEN"));
  }
}

}  // namespace kvkeep::e2e
