// The operator's verbs: status, clear, drain, version.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <thread>

#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/status_view.h"

namespace kvkeep::tools {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};

int Status(const Cli& cli) {
  client::AdminClient admin = cli.Admin();
  auto status = admin.Status();
  if (!status.ok()) return cli.Fail(status.status());
  return cli.Print(StatusJson(*status), StatusText(*status));
}

int Clear(const Cli& cli, bool yes) {
  if (!yes && !cli.Agreed(absl::StrCat("forget all chunks of all tiers at ", cli.admin_endpoint))) {
    return kUsage;
  }
  client::AdminClient admin = cli.Admin();
  auto cleared = admin.Clear(nullptr);
  if (!cleared.ok()) return cli.Fail(cleared.status());
  return cli.Print({{"cleared_chunks", cleared->cleared_chunks()}},
                   absl::StrCat("cleared ", cleared->cleared_chunks(), " chunks\n"));
}

// Chunks that are to be written to G4, waiting or on their way. Each that was offered ends as one
// of the others.
uint64_t ChunksForG4(const v1::StatusResponse& status) {
  const uint64_t over = CounterOf(status, "g4_dropped_chunks") +
                        CounterOf(status, "g4_written_chunks") +
                        CounterOf(status, "g4_failed_writes");
  const uint64_t offered = CounterOf(status, "g4_offered_chunks");
  return offered - std::min(offered, over);
}

// The last status: nothing is to be written to G4 any more, or the time is over, or there is no G4.
// Nobody tells when, so it is looked at again and again.
absl::StatusOr<v1::StatusResponse> AwaitG4Writes(client::AdminClient& admin,
                                                 std::chrono::milliseconds timeout) {
  const auto give_up = std::chrono::steady_clock::now() + timeout;
  while (true) {
    absl::StatusOr<v1::StatusResponse> status = admin.Status();
    if (!status.ok() || !status->has_g4() || ChunksForG4(*status) == 0 ||
        std::chrono::steady_clock::now() >= give_up) {
      return status;
    }
    std::this_thread::sleep_for(kBetweenLooks);  // for the daemon's writes
  }
}

int Drain(const Cli& cli, bool g4) {
  client::AdminClient admin = cli.Admin();
  Json json = Json::object();
  std::string g4_text;
  uint64_t left_for_g4 = 0;
  if (g4) {
    // Before the drain, which starts no writes to G4.
    const auto status = AwaitG4Writes(admin, cli.timeout());
    if (!status.ok()) return cli.Fail(status.status());
    left_for_g4 = ChunksForG4(*status);
    if (!status->has_g4()) cli.terminal.err << "kvkeep: the daemon has no G4\n";
    if (left_for_g4 > 0) {
      cli.terminal.err << "kvkeep: " << left_for_g4 << " chunks were not written to G4 ("
                       << G4StateText(status->g4()) << ") within --timeout " << cli.timeout_text
                       << "\n";
    }
    json["g4_chunks_left"] = left_for_g4;
    g4_text = absl::StrCat(", ", left_for_g4, " chunks not written to G4");
  }
  auto drained = admin.Drain(cli.timeout());
  if (!drained.ok()) return cli.Fail(drained.status());
  const uint64_t left = drained->dirty_chunks_left();
  if (left > 0) {
    cli.terminal.err << "kvkeep: " << left
                     << " dirty chunks were not written back within --timeout " << cli.timeout_text
                     << "\n";
  }
  json["dirty_chunks_left"] = left;
  return cli.Print(json, absl::StrCat("drained, ", left, " dirty chunks left", g4_text, "\n"),
                   left == 0 && left_for_g4 == 0 ? kOk : kFailed);
}

}  // namespace

void AddAdminVerbs(CLI::App& app, Cli& cli) {
  app.add_subcommand("status", "show tiers, devices and sessions (admin socket)")->callback([&cli] {
    cli.run = [&cli] { return Status(cli); };
  });
  auto yes = std::make_shared<bool>(false);
  CLI::App* clear = app.add_subcommand("clear", "forget all chunks of all tiers (admin socket)");
  clear->add_flag("--yes", *yes, "do not ask");
  clear->callback([&cli, yes] { cli.run = [&cli, yes] { return Clear(cli, *yes); }; });
  auto g4 = std::make_shared<bool>(false);
  CLI::App* drain =
      app.add_subcommand("drain", "write dirty chunks back and stop taking puts (admin socket)");
  drain->add_flag("--g4", *g4,
                  "before that, and for --timeout at most, wait until what is to be written to G4 "
                  "is: the drain starts no such write. Puts that come meanwhile prolong it");
  drain->callback([&cli, g4] { cli.run = [&cli, g4] { return Drain(cli, *g4); }; });
  app.add_subcommand("version", "print the version of this tool")->callback([&cli] {
    cli.run = [&cli] {
      return cli.Print({{"version", KVKEEP_VERSION}},
                       absl::StrCat("kvkeep ", KVKEEP_VERSION, "\n"));
    };
  });
}

}  // namespace kvkeep::tools
