// kvkeep g4 check and sweep: what they print and how they exit, on a bucket of the test's.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/served_bucket.h"
#include "tests/tools/cli_run.h"

namespace kvkeep::tools {
namespace {

// The verb on "bucket", with the prefix "kv".
CliResult RunG4(FakeS3* bucket, const std::string& verb, const std::string& keys,
                const std::vector<std::string>& more = {}) {
  ScriptedServer server([bucket](ServedConnection& connection, int) {
    ServeBucket(*bucket, connection);
  });
  const TemporaryDirectory scratch;
  std::ofstream(scratch.path("keys")) << keys;
  std::filesystem::permissions(scratch.path("keys"), std::filesystem::perms::owner_read |
                                                         std::filesystem::perms::owner_write);
  std::vector<std::string> arguments = {"g4", verb, server.url(""), "bucket", "--prefix", "kv",
                                        "--credentials-file", scratch.path("keys"), "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Run(arguments);
}

CliResult CheckG4(FakeS3* bucket, const std::string& keys) { return RunG4(bucket, "check", keys); }

}  // namespace

TEST_CASE("g4 check says of a bucket what was tried, and exits by whether it is good") {
  FakeS3 bucket(RealClock(),
                std::make_shared<const S3Keys>(S3Keys{"ID", SecretText("secret"), "", {}}));
  const CliResult good = CheckG4(&bucket, "ID\nsecret\n");
  INFO(good.out << good.err);
  CHECK(good.code == 0);
  CHECK(good.json()["good"] == true);
  CHECK(good.json()["findings"].size() >= 15);
  CHECK(bucket.objects().empty());
  const CliResult bad = CheckG4(&bucket, "ID\nwrong\n");
  CHECK(bad.code == 1);
  CHECK(bad.json()["findings"][0]["says"] == "403 SignatureDoesNotMatch");
  CHECK_FALSE(absl::StrContains(bad.out + bad.err, "wrong"));
  CHECK(Run({"g4", "check", "ftp://host", "bucket"}).code == 2);
  // Its objects go after 7 days.
  CHECK(RunG4(&bucket, "check", "ID\nsecret\n", {"--lifetime", "7d"}).code == 0);
  const CliResult late = RunG4(&bucket, "check", "ID\nsecret\n", {"--lifetime", "169h"});
  CHECK(late.code == 1);
  CHECK(absl::StrContains(late.out, "g4.lifetime: 7d"));
  CHECK(RunG4(&bucket, "check", "ID\nsecret\n", {"--lifetime", "soon"}).code == 2);
}

TEST_CASE("g4 sweep deletes old images of a bucket, page by page, and tells how many") {
  FakeS3 bucket(RealClock(),
                std::make_shared<const S3Keys>(S3Keys{"ID", SecretText("secret"), "", {}}));
  bucket.page = 2;
  const auto name = [](char digit) {
    return "kv/1/" + std::string(3, digit) + "/" + std::string(40, digit);
  };
  bucket.clock_ahead = -std::chrono::hours(49);
  for (const char digit : {'1', '2', '3', '4', '5'}) bucket.Change(name(digit), "old image");
  bucket.Change("kv/1/111/notes", "not ours");
  bucket.Change("1/aaa/" + std::string(40, 'a'), "of another prefix");
  bucket.clock_ahead = std::chrono::seconds(0);
  bucket.Change(name('6'), "young");

  const CliResult dry =
      RunG4(&bucket, "sweep", "ID\nsecret\n", {"--older-than", "2d", "--dry-run"});
  INFO(dry.out << dry.err);
  CHECK(dry.code == 0);
  CHECK(dry.json()["deleted"] == 5);
  CHECK(bucket.objects().size() == 8);

  const CliResult swept = RunG4(&bucket, "sweep", "ID\nsecret\n", {"--older-than", "2d"});
  CHECK(swept.code == 0);
  CHECK(swept.json()["deleted"] == 5);
  CHECK(swept.json()["deleted_bytes"] == 45);
  CHECK(swept.json()["kept"] == 1);
  CHECK(swept.json()["others"] == 1);
  CHECK(bucket.objects().size() == 3);
  CHECK(bucket.objects().count(name('6')) == 1);

  CHECK(RunG4(&bucket, "sweep", "ID\nwrong\n", {"--older-than", "2d"}).code != 0);
  CHECK(RunG4(&bucket, "sweep", "ID\nsecret\n", {"--older-than", "59m"}).code == 2);
  CHECK(RunG4(&bucket, "sweep", "ID\nsecret\n").code == 2);
  CHECK(Run({"g4", "sweep", "--older-than", "2d"}).code == 2);
}

}  // namespace kvkeep::tools
