// kvkeep g4 check: tries a bucket's server, or a shared directory, before a daemon trusts it.
// kvkeep g4 init: makes a directory a fleet's.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>

#include "tiers/base/random.h"
#include "tiers/objects/bucket_check.h"
#include "tiers/objects/curl_engine.h"
#include "tiers/objects/directory_check.h"
#include "tiers/objects/shared_directory.h"
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
  std::string lifetime;          // empty: not told
  std::string directory, fleet;  // no directory: the bucket
};

int PrintFindings(const Cli& cli, const std::vector<BucketFinding>& findings) {
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

int RunG4Check(const Cli& cli, const CheckAsked& asked) {
  const bool bucket = !asked.urls.endpoints[0].empty() && !asked.urls.bucket.empty();
  if (bucket == !asked.directory.empty()) {
    return cli.FailUsage("either ENDPOINT and BUCKET, or --directory");
  }
  if (!bucket) return PrintFindings(cli, CheckDirectory(asked.directory, asked.fleet));
  BucketCheckOptions options;
  if (!asked.lifetime.empty()) {
    options.lifetime =
        std::chrono::duration_cast<std::chrono::seconds>(*ParseDuration(asked.lifetime));
  }
  const absl::StatusOr<S3Urls> urls = S3Urls::Make(asked.urls);
  if (!urls.ok()) return cli.FailUsage(std::string(urls.status().message()));
  const absl::StatusOr<SharedS3Keys> keys =
      FindBucketKeys(asked.keys, asked.urls.region, asked.http);
  if (!keys.ok()) return cli.FailAtFiles(keys.status());
  // The check cuts a body off while it is sent, not while it waits for the server.
  CurlEngineOptions http = asked.http;
  http.expect_continue_from_bytes = UINT64_MAX;
  const auto engine = CurlEngine::Make(http, RealClock());
  if (!engine.ok()) return cli.Fail(engine.status());
  return PrintFindings(
      cli, CheckBucket(*urls, *keys, options, engine->get(), RealClock(), RealRandom()));
}

void AddG4InitVerb(CLI::App& g4, Cli& cli) {
  CLI::App* init = g4.add_subcommand(
      "init",
      "make a shared directory a fleet's: writes its mark. Without the mark no daemon uses it, so "
      "a missing mount is not mistaken for it. Once for a fleet, on any node");
  auto asked = std::make_shared<CheckAsked>();
  init->add_option("--directory", asked->directory, "an existing directory")->required();
  init->add_option("--fleet", asked->fleet, "fleet.name of the nodes")->required();
  init->callback([&cli, asked] {
    cli.run = [&cli, asked] {
      const absl::Status marked = MarkSharedDirectory(asked->directory, asked->fleet);
      if (!marked.ok()) return cli.FailAtFiles(marked);
      return cli.Print(
          {{"directory", asked->directory}, {"fleet", asked->fleet}},
          absl::StrCat(asked->directory, " belongs to the fleet '", asked->fleet, "'\n"));
    };
  });
}

}  // namespace

void AddG4Verbs(CLI::App& app, Cli& cli) {
  CLI::App* g4 = app.add_subcommand("g4", "object storage");
  g4->require_subcommand(1);
  CLI::App* check = g4->add_subcommand(
      "check",
      "try a bucket before a daemon trusts it: puts, races, cuts off, reads, overwrites and "
      "deletes objects of its own below check/. Or a shared directory, as the daemon's user: its "
      "mark, and whether files of other users can be read and written beside. Exit code 1: images "
      "would be lost or mixed, or nothing works");
  auto asked = std::make_shared<CheckAsked>();
  check->add_option("ENDPOINT", asked->urls.endpoints[0], "https://host or http://host:port");
  check->add_option("BUCKET", asked->urls.bucket, "its name; it must exist");
  check->add_option("--directory", asked->directory, "a shared directory, instead of a bucket");
  check->add_option("--fleet", asked->fleet, "the fleet that the directory must belong to");
  check
      ->add_option("--lifetime", asked->lifetime,
                   "intended g4.lifetime: 7d; compared with the bucket's rules")
      ->check(BadDuration);
  AddBucketOptions(*check, *asked);
  check->callback([&cli, asked] { cli.run = [&cli, asked] { return RunG4Check(cli, *asked); }; });
  AddG4InitVerb(*g4, cli);
  AddG4SweepVerb(*g4, cli);
}

}  // namespace kvkeep::tools
