// tools/compare/s3 as a whole, with the arms that need no other project, on a bucket of the tests.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/bucket_server.h"
#include "tests/e2e/shell.h"

namespace kvkeep::e2e {
namespace {

// A short run, in a directory of its own.
struct ShortComparison {
  ScratchDir dir;
  BucketServer bucket;
  std::string figures = dir.path() + "/figures";

  Outcome Run() {
    const std::string credentials = dir.path() + "/credentials";
    WriteForOwner(credentials, "ID\nsecret\n");
    return RunShell(absl::StrCat(
        KVKEEP_PYTHON3, " -B '" S3_PATH "/compare_s3.py' --build '" BUILD_PATH "' --url ",
        bucket.url(),
        " --credentials ", credentials,
        " --sizes 1MiB --chunks 9 --rounds 2 --lookup 64,20 --json ", figures));
  }
  std::set<std::string> Rows() const {
    std::set<std::string> rows;
    const std::vector<std::string> lines =
        absl::StrSplit(ReadFile(figures), '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      const auto row = nlohmann::json::parse(line);
      if (row.contains("arm")) {
        rows.insert(absl::StrCat(row["arm"].get<std::string>(), ": ",
                                 row["what"].get<std::string>()));
      }
    }
    return rows;
  }
};

}  // namespace

TEST_CASE("kvkeep and a bare loop are compared on one bucket, and who is not there is said") {
  ShortComparison comparison;
  const Outcome outcome = comparison.Run();
  INFO(outcome.output);
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.output, Catch::Contains("wrong bytes: 0") &&
                                 Catch::Contains("lmcache is left out: no --lmcache") &&
                                 Catch::Contains("nixl is left out: no --nixl"));
  CHECK(comparison.Rows() ==
        std::set<std::string>{"bare: load", "bare: put", "bare: recall", "kvkeep: load",
                              "kvkeep: lookup", "kvkeep: lookup+load", "kvkeep: put",
                              "kvkeep: recall"});
  // Each arm's two runs, and 20 chunks of kvkeep's lookup: loaded bytes came from the bucket.
  CHECK(comparison.bucket.requests >= 2 * 2 * 9 * 2 + 2 * 20);
}

TEST_CASE("with a bucket that spoils bytes the exit code is 1, and kvkeep has none of them") {
  ShortComparison comparison;
  comparison.bucket.state = Bucket::kFlips;
  const Outcome outcome = comparison.Run();
  INFO(outcome.output);
  CHECK(outcome.status == 1);
  CHECK_THAT(outcome.output, Catch::Contains("bare: 9 WRONG BYTES") &&
                                 !Catch::Contains("kvkeep: 9 WRONG BYTES"));
}

}  // namespace kvkeep::e2e
