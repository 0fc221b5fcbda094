// The verbs about the daemon's config: config show, config reload.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>

#include "tools/kvkeep/cli.h"

namespace kvkeep::tools {
namespace {

int Show(const Cli& cli, bool effective) {
  client::AdminClient admin = cli.Admin();
  const auto config = admin.ShowConfig();
  if (!config.ok()) return cli.Fail(config.status());
  Json values = Json::array();
  std::vector<std::vector<std::string>> rows = {{"KEY", "VALUE", "FROM", "RELOAD"}};
  for (const v1::ConfigValue& value : config->values()) {
    if (!effective && value.origin() == "default") continue;
    values.push_back({{"key", value.key()},
                      {"value", value.value()},
                      {"origin", value.origin()},
                      {"default", value.default_value()},
                      {"live", value.live()}});
    rows.push_back({value.key(), value.value(), value.origin(), value.live() ? "live" : "restart"});
  }
  return cli.Print({{"file", config->file()}, {"hash", config->hash()}, {"values", values}},
                   absl::StrCat(FormatTable(rows), "hash ", config->hash(), "\n"));
}

int Reload(const Cli& cli) {
  client::AdminClient admin = cli.Admin();
  const auto reloaded = admin.ReloadConfig();
  if (!reloaded.ok()) return cli.Fail(reloaded.status());
  Json changes = Json::array();
  std::string text;
  for (const v1::ConfigChange& change : reloaded->changes()) {
    changes.push_back(
        {{"key", change.key()}, {"before", change.before()}, {"after", change.after()}});
    absl::StrAppend(&text, change.key(), ": ", change.before(), " -> ", change.after(), "\n");
  }
  if (text.empty()) text = "nothing changed\n";
  return cli.Print({{"changes", changes}, {"hash", reloaded->hash()}}, text);
}

}  // namespace

void AddConfigVerbs(CLI::App& app, Cli& cli) {
  CLI::App* config = app.add_subcommand("config", "the daemon's configuration (admin socket)");
  config->require_subcommand(1);
  config->fallthrough();
  auto effective = std::make_shared<bool>(false);
  CLI::App* show = config->add_subcommand(
      "show", "show the values that were set, and where: file and line, environment, flag");
  show->add_flag("--effective", *effective, "all values, defaults too");
  show->callback(
      [&cli, effective] { cli.run = [&cli, effective] { return Show(cli, *effective); }; });
  config
      ->add_subcommand("reload",
                       "read the file again and apply the keys that may change while the daemon "
                       "runs, all or none; like SIGHUP")
      ->callback([&cli] { cli.run = [&cli] { return Reload(cli); }; });
}

}  // namespace kvkeep::tools
