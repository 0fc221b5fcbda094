// kvkeep fsck: checks a G3 device while no daemon uses it, and rebuilds its index.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "config/config.h"
#include "config/embedded.h"
#include "tiers/base/status_macros.h"
#include "tiers/fsck/fsck.h"
#include "tiers/nvme/key_ring_file.h"
#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

// Exit codes of this verb, in the tradition of fsck commands.
enum FsckExit : int { kClean = 0, kFindings = 1, kCannotCheck = 2 };

struct FsckAsked {
  std::string dir;
  std::string config;    // the daemon's file
  std::string identity;  // or its state file itself
  bool headers_only = false;
  bool rebuild = false;
  bool yes = false;
  size_t max_findings = 1000;
  uint32_t threads = 4;
};

int CannotCheck(const Cli& cli, const absl::Status& status) {
  cli.terminal.err << "kvkeep: " << std::string(status.message()) << "\n";
  return kCannotCheck;
}

absl::StatusOr<Config> FindConfig(const FsckAsked& asked) {
  if (asked.config.empty()) return EmbeddedDefaultConfig(UserEnvironment::OfProcess());
  const LoadResult loaded = LoadConfigFile(asked.config);
  if (loaded.config.has_value()) return *loaded.config;
  return absl::InvalidArgumentError(absl::StrJoin(loaded.errors, "\n"));
}

// Returns the file in which the daemon keeps the secret that signs its images.
absl::StatusOr<std::string> IdentityFile(const FsckAsked& asked) {
  if (!asked.identity.empty()) return asked.identity;
  KVKEEP_ASSIGN_OR_RETURN(const Config config, FindConfig(asked));
  return config.state.dir + "/identity";
}

// Returns the keys to read encrypted images with; null: no config given, or no key file in it.
absl::StatusOr<std::unique_ptr<KeyRing>> FindKeys(const FsckAsked& asked) {
  if (asked.config.empty()) return nullptr;
  KVKEEP_ASSIGN_OR_RETURN(const Config config, FindConfig(asked));
  if (config.encryption.master_key_file.empty()) return nullptr;
  KVKEEP_ASSIGN_OR_RETURN(const Secret master, ReadMasterKey(config.encryption.master_key_file));
  const std::string ring = config.state.dir + "/keyring";
  KVKEEP_ASSIGN_OR_RETURN(const std::vector<KeyRing::Entry> entries, KeyRingFile::Read(ring));
  KVKEEP_ASSIGN_OR_RETURN(
      const std::vector<Secret> previous,
      ReadPreviousMasterKeys(config.encryption.previous_master_key_files, entries, master));
  absl::StatusOr<std::unique_ptr<KeyRing>> keys = KeyRing::Unwrap(entries, master, previous);
  if (keys.ok()) return keys;
  return absl::FailedPreconditionError(absl::StrCat(ring, ": ", keys.status().message()));
}

absl::StatusOr<FsckOptions> MakeOptions(const Cli& cli, const FsckAsked& asked) {
  FsckOptions options{.dir = asked.dir,
                      .headers_only = asked.headers_only,
                      .threads = asked.threads,
                      .max_findings = asked.max_findings};
  KVKEEP_ASSIGN_OR_RETURN(const std::string file, IdentityFile(asked));
  absl::StatusOr<StoreIdentity> identity = LoadStoreIdentity(file);
  if (absl::IsNotFound(identity.status())) {
    return absl::NotFoundError(absl::StrCat(
        file, ": no such state file; give the daemon's: --config FILE or --identity FILE"));
  }
  if (absl::IsFailedPrecondition(identity.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        identity.status().message(), " (and run kvkeep fsck as the user that kvkeepd runs as)"));
  }
  if (!identity.ok()) return identity.status();
  options.identity = *identity;
  KVKEEP_ASSIGN_OR_RETURN(options.boot_id, ReadBootId());
  if (cli.terminal.progress) {
    options.progress = [&err = cli.terminal.err](const FsckProgress& progress) {
      err << absl::StrFormat("\r%s: %d images, %s read ", progress.phase, progress.images,
                             FormatBytes(progress.read_bytes));
      err.flush();
    };
  }
  return options;
}

void EndProgress(const Cli& cli) {
  if (cli.terminal.progress) cli.terminal.err << "\r\033[K";
}

Json ToJson(const std::vector<FsckFinding>& findings) {
  Json list = Json::array();
  for (const FsckFinding& finding : findings) {
    Json item = {{"problem", std::string(FsckProblemName(finding.problem))},
                 {"notice", finding.notice},
                 {"file", finding.file}};
    if (finding.block.has_value()) item["block"] = *finding.block;
    if (finding.chunk.has_value()) item["chunk"] = finding.chunk->ToString();
    item["what"] = finding.what;
    item["to_do"] = finding.to_do;
    list.push_back(std::move(item));
  }
  return list;
}

template <typename Report>
std::string Listed(const Report& report) {
  std::string text;
  for (const FsckFinding& finding : report.findings) {
    absl::StrAppend(&text, finding.ToString(), "\n");
  }
  const uint64_t more = report.problems + report.notices - report.findings.size();
  if (more > 0) absl::StrAppend(&text, "... and ", more, " more\n");
  return text;
}

int PrintCheck(const Cli& cli, const FsckOptions& options, const FsckReport& report) {
  std::string text = Listed(report);
  absl::StrAppendFormat(&text, "%d records: %d chunks good%s, %d bad, %d stale\n", report.records,
                        report.good_chunks, options.headers_only ? " (headers only)" : "",
                        report.bad_chunks, report.stale_chunks);
  if (report.doubtful_chunks > 0) {
    absl::StrAppendFormat(&text,
                          "%d of the good ones are doubtful: not known to be synced, a durable put "
                          "writes them anew\n",
                          report.doubtful_chunks);
  }
  if (report.unchecked_chunks > 0) {
    absl::StrAppendFormat(&text, "%d of the good ones are encrypted, payload not checked\n",
                          report.unchecked_chunks);
  }
  if (report.plain_chunks > 0) {
    absl::StrAppendFormat(&text,
                          "%d of the good ones are in plain: this detects faults, but not planted "
                          "bytes (encryption detects both)\n",
                          report.plain_chunks);
  }
  absl::StrAppendFormat(&text, "%s of data: %s used, %s free", FormatBytes(report.data_bytes),
                        FormatBytes(report.used_bytes), FormatBytes(report.free_bytes));
  if (!options.headers_only) {
    absl::StrAppendFormat(&text, ", %s free with %d old images in it",
                          FormatBytes(report.orphaned_bytes), report.orphaned_images);
  }
  absl::StrAppend(&text, "\n", options.dir, ": ",
                  report.clean()     ? "clean"
                  : !report.complete ? "cannot be checked any further"
                                     : absl::StrCat(report.problems, " problems"),
                  "\n");
  return cli.Print({{"dir", options.dir},
                    {"device", report.device.ToHex()},
                    {"clean", report.clean()},
                    {"complete", report.complete},
                    {"headers_only", options.headers_only},
                    {"records", report.records},
                    {"good_chunks", report.good_chunks},
                    {"bad_chunks", report.bad_chunks},
                    {"stale_chunks", report.stale_chunks},
                    {"doubtful_chunks", report.doubtful_chunks},
                    {"unchecked_chunks", report.unchecked_chunks},
                    {"plain_chunks", report.plain_chunks},
                    {"orphaned_images", report.orphaned_images},
                    {"data_bytes", report.data_bytes},
                    {"label_bytes", report.label_bytes},
                    {"used_bytes", report.used_bytes},
                    {"orphaned_bytes", report.orphaned_bytes},
                    {"free_bytes", report.free_bytes},
                    {"read_bytes", report.read_bytes},
                    {"problems", report.problems},
                    {"notices", report.notices},
                    {"findings", ToJson(report.findings)}},
                   text, report.clean() ? kClean : kFindings);
}

int PrintRebuild(const Cli& cli, const FsckOptions& options, const RebuildReport& report) {
  std::string text = Listed(report);
  absl::StrAppendFormat(&text, "%s: a new index of %d chunks (%s)\n", options.dir, report.chunks,
                        FormatBytes(report.chunk_bytes));
  if (report.damaged + report.dropped > 0) {
    absl::StrAppendFormat(&text, "left out: %d damaged, %d in favour of newer ones\n",
                          report.damaged, report.dropped);
  }
  if (!report.old_index.empty()) {
    absl::StrAppend(&text, "the old index is in ", report.old_index,
                    "; remove it when it is not needed any more\n");
  }
  return cli.Print({{"dir", options.dir},
                    {"marked_images", report.marked_images},
                    {"chunks", report.chunks},
                    {"chunk_bytes", report.chunk_bytes},
                    {"damaged", report.damaged},
                    {"dropped", report.dropped},
                    {"old_index", report.old_index},
                    {"problems", report.problems},
                    {"notices", report.notices},
                    {"findings", ToJson(report.findings)}},
                   text, report.problems == 0 ? kClean : kFindings);
}

bool MayRebuild(const Cli& cli, const FsckAsked& asked) {
  if (asked.yes) return true;
  if (!cli.terminal.can_ask) {
    cli.terminal.err << "kvkeep: --rebuild-index replaces the index: say --yes\n";
    return false;
  }
  cli.terminal.err << "Replace the index of " << asked.dir << " (the old one is kept)? [y/N] ";
  cli.terminal.err.flush();
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "yes";
}

int RunFsck(const Cli& cli, const FsckAsked& asked) {
  absl::StatusOr<FsckOptions> options = MakeOptions(cli, asked);
  if (!options.ok()) return CannotCheck(cli, options.status());
  const absl::StatusOr<std::unique_ptr<KeyRing>> keys = FindKeys(asked);
  if (!keys.ok()) return CannotCheck(cli, keys.status());
  options->keys = keys->get();
  if (asked.rebuild) {
    if (!MayRebuild(cli, asked)) return kCannotCheck;
    const absl::StatusOr<RebuildReport> report = RebuildIndex(*options);
    EndProgress(cli);
    return report.ok() ? PrintRebuild(cli, *options, *report) : CannotCheck(cli, report.status());
  }
  const absl::StatusOr<FsckReport> report = Fsck(*options);
  EndProgress(cli);
  return report.ok() ? PrintCheck(cli, *options, *report) : CannotCheck(cli, report.status());
}

}  // namespace

void AddFsckVerb(CLI::App& app, Cli& cli) {
  CLI::App* fsck = app.add_subcommand(
      "fsck",
      "check one path of G3 while no daemon uses it: superblock, data files, index, every byte of "
      "every chunk. Changes nothing, unless told to rebuild the index. Exit codes: 0 clean, 1 "
      "findings, 2 cannot check");
  auto asked = std::make_shared<FsckAsked>();
  fsck->add_option("DIR", asked->dir, "the device's directory, as in g3.paths")->required();
  CLI::Option* config = fsck->add_option(
      "--config", asked->config, "the daemon's config file, which names its state directory");
  fsck->add_option("--identity", asked->identity, "the daemon's state file: state.dir/identity")
      ->excludes(config);
  CLI::Option* headers =
      fsck->add_flag("--headers-only", asked->headers_only, "fast: index and headers, no payloads");
  fsck->add_flag("--rebuild-index", asked->rebuild,
                 "rebuild a lost index from the images in the device's live map; keeps the old one "
                 "beside it. Deleted, cleared and evicted chunks stay away; after a power cut, the "
                 "ones of a second before")
      ->excludes(headers);
  fsck->add_flag("--yes", asked->yes, "do not ask");
  fsck->add_option("--threads", asked->threads, "number of threads that read and check")
      ->check(CLI::Range(1, 64));
  fsck->add_option("--max-findings", asked->max_findings,
                   "number of findings to list; all are counted")
      ->check(CLI::Range(1, 1'000'000));
  fsck->callback([&cli, asked] { cli.run = [&cli, asked] { return RunFsck(cli, *asked); }; });
}

}  // namespace kvkeep::tools
