// kvkeep g4 check: what a bucket's server does, tried on it before a daemon trusts it.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>

#include "tiers/base/random.h"
#include "tiers/objects/bucket_check.h"
#include "tiers/objects/curl_engine.h"
#include "tools/kvkeep/bucket_keys.h"
#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

const char* NameOfVerdict(BucketFinding::Verdict verdict) {
  switch (verdict) {
    case BucketFinding::Verdict::kGood: return "good";
    case BucketFinding::Verdict::kNote: return "note";
    case BucketFinding::Verdict::kBad: return "bad";
  }
  return "";
}

struct CheckAsked : BucketAsked {
  std::string lifetime;  // empty: not told
};

int RunG4Check(const Cli& cli, const CheckAsked& asked) {
  BucketCheckOptions options;
  if (!asked.lifetime.empty()) {
    options.lifetime =
        std::chrono::duration_cast<std::chrono::seconds>(*ParseDuration(asked.lifetime));
  }
  const absl::StatusOr<S3Urls> urls = S3Urls::Make(asked.urls);
  if (!urls.ok()) return cli.FailUsage(std::string(urls.status().message()));
  const absl::StatusOr<SharedS3Keys> keys = FindBucketKeys(asked.credentials_file);
  if (!keys.ok()) return cli.FailAtFiles(keys.status());
  // A body is cut off while it is sent, not while it waits to be wanted.
  const auto engine = CurlEngine::Make(
      {.expect_continue_from_bytes = UINT64_MAX, .ca_file = asked.ca_file}, RealClock());
  if (!engine.ok()) return cli.Fail(engine.status());
  const std::vector<BucketFinding> findings =
      CheckBucket(*urls, *keys, options, engine->get(), RealClock(), RealRandom());
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {{"TRIED", "SAYS", "", "MEANS"}};
  bool good = true;
  for (const BucketFinding& finding : findings) {
    const char* const verdict = NameOfVerdict(finding.verdict);
    good = good && finding.verdict != BucketFinding::Verdict::kBad;
    list.push_back({{"tried", finding.what}, {"says", finding.says}, {"verdict", verdict},
                    {"means", finding.means}});
    rows.push_back({finding.what, finding.says, verdict, finding.means});
  }
  return cli.Print({{"good", good}, {"findings", std::move(list)}}, FormatTable(rows),
                   good ? kOk : kFailed);
}

}  // namespace

void AddG4Verbs(CLI::App& app, Cli& cli) {
  CLI::App* g4 = app.add_subcommand("g4", "object storage");
  g4->require_subcommand(1);
  CLI::App* check = g4->add_subcommand(
      "check",
      "try a bucket before a daemon trusts it: puts, races, cuts off, reads, overwrites and "
      "deletes objects of its own below check/. Exit code 1: images would be lost or mixed, or "
      "nothing works");
  auto asked = std::make_shared<CheckAsked>();
  check->add_option("ENDPOINT", asked->urls.endpoints[0], "https://host or http://host:port")
      ->required();
  check->add_option("BUCKET", asked->urls.bucket, "its name; it is there already")->required();
  check->add_option("--lifetime", asked->lifetime, "what g4.lifetime is to be: 7d; compared with "
                    "the bucket's rules")
      ->check(BadDuration);
  AddBucketOptions(*check, *asked);
  check->callback([&cli, asked] { cli.run = [&cli, asked] { return RunG4Check(cli, *asked); }; });
  AddG4SweepVerb(*g4, cli);
}

}  // namespace kvkeep::tools
