// The operator's verbs: status, clear, drain, version.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>

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

int Drain(const Cli& cli) {
  client::AdminClient admin = cli.Admin();
  auto drained = admin.Drain(cli.timeout());
  if (!drained.ok()) return cli.Fail(drained.status());
  const uint64_t left = drained->dirty_chunks_left();
  if (left > 0) {
    cli.terminal.err << "kvkeep: " << left
                     << " dirty chunks were not written back within --timeout " << cli.timeout_text
                     << "\n";
  }
  return cli.Print({{"dirty_chunks_left", left}},
                   absl::StrCat("drained, ", left, " dirty chunks left\n"),
                   left == 0 ? kOk : kFailed);
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
  app.add_subcommand("drain", "write dirty chunks back and stop taking puts (admin socket)")
      ->callback([&cli] { cli.run = [&cli] { return Drain(cli); }; });
  app.add_subcommand("version", "print the version of this tool")->callback([&cli] {
    cli.run = [&cli] {
      return cli.Print({{"version", KVKEEP_VERSION}},
                       absl::StrCat("kvkeep ", KVKEEP_VERSION, "\n"));
    };
  });
}

}  // namespace kvkeep::tools
