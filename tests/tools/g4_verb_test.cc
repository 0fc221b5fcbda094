// kvkeep g4 init, check and sweep: their output and exit codes, on a bucket and a directory of the
// test's.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/served_bucket.h"
#include "tests/tools/cli_run.h"

namespace kvkeep::tools {
namespace {

// Runs the verb on "bucket", with the prefix "kv".
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

TEST_CASE("g4 init makes a directory a fleet's, and check and sweep want it to be one") {
  const TemporaryDirectory scratch;
  const std::string path = scratch.path("g4");
  std::filesystem::create_directory(path);
  const auto check = [&](const std::string& fleet) {
    return Run({"g4", "check", "--directory", path, "--fleet", fleet, "--json"});
  };
  const std::vector<std::string> sweep = {"g4", "sweep", "--directory", path, "--older-than", "2d",
                                          "--json"};
  CHECK(check("east").code == 1);
  CHECK(Run(sweep).code != 0);
  CHECK(std::filesystem::is_empty(path));
  CHECK(Run({"g4", "init", "--directory", path, "--fleet", "east"}).code == 0);
  CHECK(Run({"g4", "init", "--directory", path, "--fleet", "east"}).code == 0);
  CHECK(Run({"g4", "init", "--directory", path, "--fleet", "west"}).code != 0);
  CHECK(check("east").code == 0);
  CHECK(check("").code == 0);
  CHECK(check("west").code == 1);
  CHECK(Run({"g4", "check"}).code == 2);

  const std::string left = path + "/.new/0123456789abcdef";
  std::ofstream(left) << "half an image";
  CHECK(Run(sweep).json()["leftover_files"] == 0);
  std::filesystem::last_write_time(
      left, std::filesystem::file_time_type::clock::now() - std::chrono::hours(72));
  const CliResult swept = Run(sweep);
  CHECK(swept.code == 0);
  CHECK(swept.json()["leftover_files"] == 1);
  CHECK(swept.json()["leftover_bytes"] == 13);
  CHECK_FALSE(std::filesystem::exists(left));
}

}  // namespace kvkeep::tools
