// kvkeep g4 sweep: deletes images that are older than their lifetime, for servers without lifecycle
// rules.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>

#include "tiers/base/random.h"
#include "tiers/base/status_macros.h"
#include "tiers/objects/shared_directory.h"
#include "tiers/remote/image_sweep.h"
#include "tiers/remote/object_place.h"
#include "tools/kvkeep/bucket_keys.h"
#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

// Longer than any write takes: no writer finishes an older leftover.
constexpr std::chrono::hours kLeftoverAge{24};

struct SweepAsked {
  BucketAsked bucket;
  std::string directory, older_than;  // no directory: the bucket
  ImageSweepOptions sweep;
};

absl::StatusOr<OpenedPlace> OpenSwept(const SweepAsked& asked) {
  const ObjectPlace place{.bucket = asked.bucket.urls,
                          .directory = asked.directory,
                          .keys = asked.bucket.keys,
                          .http = asked.bucket.http,
                          .keys_within = kLongestKeyFetch,
                          .directory_threads = static_cast<int>(asked.sweep.at_once),
                          .longest_directory_request = asked.sweep.list_within};
  KVKEEP_ASSIGN_OR_RETURN(OpenedPlace opened, OpenObjectPlace(place, RealClock(), RealRandom()));
  // A daemon would go on, and request keys again; this verb requests them once.
  if (opened.credentials != nullptr) KVKEEP_RETURN_IF_ERROR(opened.credentials->status());
  return opened;
}

int RunG4Sweep(const Cli& cli, SweepAsked& asked) {
  const S3UrlOptions& urls = asked.bucket.urls;
  const bool bucket = !urls.endpoints[0].empty() && !urls.bucket.empty();
  if (bucket == !asked.directory.empty()) {
    return cli.FailUsage("either ENDPOINT and BUCKET, or --directory");
  }
  asked.sweep.lifetime =
      std::chrono::duration_cast<std::chrono::seconds>(*ParseDuration(asked.older_than));
  if (const absl::Status valid = asked.sweep.Validate(); !valid.ok()) {
    return cli.FailUsage(std::string(valid.message()));
  }
  const absl::StatusOr<OpenedPlace> swept = OpenSwept(asked);
  if (!swept.ok()) return cli.FailAtFiles(swept.status());
  const absl::StatusOr<ImageSweepCounts> counts = SweepImages(
      *swept->store, RealClock(), RealRandom(), asked.sweep,
      [&cli](const ImageSweepCounts& so_far) {
        if (!cli.terminal.progress) return;
        cli.terminal.err << "\r" << so_far.deleted + so_far.kept << " images looked at, "
                         << so_far.deleted << " deleted" << std::flush;
      });
  if (cli.terminal.progress) cli.terminal.err << "\n";
  if (!counts.ok()) return cli.Fail(counts.status());
  Leftovers leftovers;
  if (!bucket) {
    const absl::StatusOr<Leftovers> removed = RemoveOldLeftovers(
        OpenSharedDirectory(asked.directory, ""), kLeftoverAge, asked.sweep.dry_run);
    if (!removed.ok()) return cli.Fail(removed.status());
    leftovers = *removed;
  }
  const char* const deleted = asked.sweep.dry_run ? "would delete" : "deleted";
  std::string text =
      absl::StrCat(deleted, " ", counts->deleted, " images, ", FormatBytes(counts->deleted_bytes),
                   "\nkept ", counts->kept, " images, ", FormatBytes(counts->kept_bytes), "\n");
  if (leftovers.files > 0) {
    absl::StrAppend(&text, deleted, " ", leftovers.files, " unfinished files, ",
                    FormatBytes(leftovers.bytes), "\n");
  }
  if (counts->others > 0) absl::StrAppend(&text, "left alone ", counts->others, " other objects\n");
  if (counts->failed > 0) {
    absl::StrAppend(&text, counts->failed, " deletions failed: ", counts->last_error, "\n");
  }
  return cli.Print({{"dry_run", asked.sweep.dry_run},
                    {"deleted", counts->deleted},
                    {"deleted_bytes", counts->deleted_bytes},
                    {"kept", counts->kept},
                    {"kept_bytes", counts->kept_bytes},
                    {"others", counts->others},
                    {"leftover_files", leftovers.files},
                    {"leftover_bytes", leftovers.bytes},
                    {"failed", counts->failed},
                    {"last_error", counts->last_error}},
                   text, counts->failed == 0 ? kOk : kFailed);
}

}  // namespace

void AddG4SweepVerb(CLI::App& g4, Cli& cli) {
  CLI::App* sweep = g4.add_subcommand(
      "sweep",
      "delete images that are older than their lifetime, for servers without lifecycle rules. May "
      "run anywhere, and twice. Touches only kvkeep's images, and in a directory unfinished files");
  auto asked = std::make_shared<SweepAsked>();
  sweep->add_option("ENDPOINT", asked->bucket.urls.endpoints[0], "https://host or http://host:port");
  sweep->add_option("BUCKET", asked->bucket.urls.bucket, "its name");
  sweep->add_option("--directory", asked->directory, "a shared directory, instead of a bucket");
  sweep->add_option("--older-than", asked->older_than, "their lifetime: 36h, 7d; an hour or more")
      ->check(BadDuration)
      ->required();
  sweep->add_flag("--dry-run", asked->sweep.dry_run, "count, delete nothing");
  sweep->add_option("--rate", asked->sweep.deletions_per_second, "deletions a second")
      ->capture_default_str();
  AddBucketOptions(*sweep, asked->bucket);
  sweep->callback([&cli, asked] { cli.run = [&cli, asked] { return RunG4Sweep(cli, *asked); }; });
}

}  // namespace kvkeep::tools
