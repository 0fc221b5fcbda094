// kvkeep g4 check: what it prints and how it exits, on a bucket of the test's.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/served_bucket.h"
#include "tests/tools/cli_run.h"

namespace kvkeep::tools {
namespace {

CliResult CheckG4(FakeS3* bucket, const std::string& keys) {
  ScriptedServer server([bucket](ServedConnection& connection, int) {
    ServeBucket(*bucket, connection);
  });
  const TemporaryDirectory scratch;
  std::ofstream(scratch.path("keys")) << keys;
  std::filesystem::permissions(scratch.path("keys"), std::filesystem::perms::owner_read |
                                                         std::filesystem::perms::owner_write);
  return Run({"g4", "check", server.url(""), "bucket", "--prefix", "kv", "--credentials-file",
              scratch.path("keys"), "--json"});
}

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
}

}  // namespace kvkeep::tools
