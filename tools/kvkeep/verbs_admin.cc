// The operator's verbs: status, clear, drain, version.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <string>

#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/status_view.h"

namespace kvkeep::tools {
namespace {

int Status(const Cli& cli) {
  client::AdminClient admin = cli.Admin();
  auto status = admin.Status();
  if (!status.ok()) return cli.Fail(status.status());
  return cli.Print(StatusJson(*status), StatusText(*status));
}

int Clear(const Cli& cli, bool yes, bool g4) {
  const absl::string_view more = g4 ? ", and all that the fleet has in G4" : "";
  if (!yes && !cli.Agreed(absl::StrCat("forget all chunks of G2 and G3 at ", cli.admin_endpoint,
                                       more))) {
    return kUsage;
  }
  client::AdminClient admin = cli.Admin();
  auto cleared = admin.Clear(nullptr, g4);
  if (!cleared.ok()) return cli.Fail(cleared.status());
  if (g4 && !cleared->g4()) {
    cli.terminal.err << "kvkeep: the daemon is too old for this kvkeep: G4 was not cleared\n";
  }
  return cli.Print({{"cleared_chunks", cleared->cleared_chunks()}, {"g4", cleared->g4()}},
                   absl::StrCat("cleared ", cleared->cleared_chunks(), " chunks",
                                cleared->g4() ? ", and G4: all nodes miss it within a minute" : "",
                                "\n"),
                   g4 && !cleared->g4() ? kFailed : kOk);
}

// Returns why chunks were not written to G4, if the daemon reports it.
std::string WhyNotInG4(client::AdminClient& admin) {
  const auto status = admin.Status();
  return status.ok() && status->has_g4() ? absl::StrCat(" (", G4StateText(status->g4()), ")") : "";
}

// Says what peers have of the chunks that a drain was to give them. Returns whether they have all.
bool AddHandedOver(const Cli& cli, const v1::DrainResponse& drained, Json* json,
                   std::string* text) {
  if (!drained.has_handed_chunks()) {
    cli.terminal.err << "kvkeep: the daemon is too old for this kvkeep: it gave peers no chunks\n";
    return false;
  }
  (*json)["handed_chunks"] = drained.handed_chunks();
  (*json)["unhanded_chunks"] = drained.unhanded_chunks();
  absl::StrAppend(text, ", ", drained.handed_chunks(), " chunks handed to peers, ",
                  drained.unhanded_chunks(), " left");
  if (drained.unhanded_chunks() == 0) return true;
  cli.terminal.err << "kvkeep: no peer had room for " << drained.unhanded_chunks()
                   << " chunks within --timeout " << cli.timeout_text << "\n";
  return false;
}

int Drain(const Cli& cli, bool g4, bool to_peers) {
  client::AdminClient admin = cli.Admin();
  const auto drained = admin.Drain(cli.timeout(), g4, to_peers);
  if (!drained.ok()) return cli.Fail(drained.status());
  const uint64_t left = drained->dirty_chunks_left(), left_for_g4 = drained->g4_chunks_left();
  if (left > 0) {
    cli.terminal.err << "kvkeep: " << left
                     << " dirty chunks were not written back within --timeout " << cli.timeout_text
                     << "\n";
  }
  Json json = {{"dirty_chunks_left", left}};
  std::string text = absl::StrCat("drained, ", left, " dirty chunks left");
  bool all = left == 0;
  if (to_peers) all = AddHandedOver(cli, *drained, &json, &text) && all;
  if (!g4) return cli.Print(json, text + "\n", all ? kOk : kFailed);
  if (!drained->has_g4_chunks_left()) {
    const auto status = admin.Status();
    const bool too_old = status.ok() && status->has_g4();
    cli.terminal.err << (too_old ? "kvkeep: the daemon is too old for this kvkeep: it did not wait "
                                   "for writes to G4\n"
                                 : "kvkeep: the daemon has no G4\n");
    return cli.Print(json, text + "\n", all && !too_old ? kOk : kFailed);
  }
  if (left_for_g4 > 0) {
    cli.terminal.err << "kvkeep: " << left_for_g4 << " chunks were not written to G4"
                     << WhyNotInG4(admin) << " within --timeout " << cli.timeout_text << "\n";
  }
  json["g4_chunks_left"] = left_for_g4;
  absl::StrAppend(&text, ", ", left_for_g4, " chunks not written to G4");
  const uint64_t removals = drained->g4_removals_left();
  if (drained->has_g4_removals_left()) {
    json["g4_removals_left"] = removals;
    absl::StrAppend(&text, ", ", removals, " deleted chunks not removed there");
  }
  if (removals > 0) {
    cli.terminal.err << "kvkeep: " << removals << " deleted chunks were not removed from G4"
                     << WhyNotInG4(admin) << " within --timeout " << cli.timeout_text
                     << "; the daemon continues with them after its next start\n";
  }
  all = all && left_for_g4 == 0 && removals == 0;
  return cli.Print(json, text + "\n", all ? kOk : kFailed);
}

}  // namespace

void AddAdminVerbs(CLI::App& app, Cli& cli) {
  app.add_subcommand("status", "show tiers, devices and sessions (admin socket)")->callback([&cli] {
    cli.run = [&cli] { return Status(cli); };
  });
  auto yes = std::make_shared<bool>(false);
  CLI::App* clear = app.add_subcommand(
      "clear", "forget all chunks of G2 and G3; G4 keeps its chunks (admin socket)");
  clear->add_flag("--yes", *yes, "do not ask");
  auto all = std::make_shared<bool>(false);
  clear->add_flag("--g4", *all,
                  "also forget the fleet's chunks in G4: every node misses them within a minute; "
                  "other nodes keep their G2 and G3");
  clear->callback([&cli, yes, all] {
    cli.run = [&cli, yes, all] { return Clear(cli, *yes, *all); };
  });
  auto g4 = std::make_shared<bool>(false);
  CLI::App* drain =
      app.add_subcommand("drain", "write dirty chunks back and stop taking puts (admin socket)");
  drain->add_flag("--g4", *g4,
                  "once puts have ended, also wait for writes to G4, for --timeout at most");
  auto to_peers = std::make_shared<bool>(false);
  drain->add_flag("--to-peers", *to_peers,
                  "give the hottest shared chunks to peers that have room, for --timeout at most");
  drain->callback([&cli, g4, to_peers] {
    cli.run = [&cli, g4, to_peers] { return Drain(cli, *g4, *to_peers); };
  });
  app.add_subcommand("version", "print the version of this tool")->callback([&cli] {
    cli.run = [&cli] {
      return cli.Print({{"version", KVKEEP_VERSION}},
                       absl::StrCat("kvkeep ", KVKEEP_VERSION, "\n"));
    };
  });
}

}  // namespace kvkeep::tools
