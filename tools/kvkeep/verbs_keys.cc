// The keys of encryption at rest: keys list; keys drop, while no daemon uses them.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "config/config.h"
#include "tiers/base/status_macros.h"
#include "tiers/nvme/key_ring_file.h"
#include "tools/kvkeep/cli.h"

namespace kvkeep::tools {
namespace {

struct KeysAsked {
  std::string config;  // the daemon's file
  std::string file;    // or its key ring itself
  std::string tenant;  // "@default": the one without a name
  bool yes = false;
};

constexpr char kDefaultTenant[] = "@default";

std::string NameOf(const std::string& tenant) { return tenant.empty() ? kDefaultTenant : tenant; }

absl::StatusOr<std::string> FindRing(const KeysAsked& asked) {
  if (!asked.file.empty()) return asked.file;
  if (asked.config.empty()) {
    return absl::InvalidArgumentError("give --config FILE or --file KEYRING");
  }
  const LoadResult loaded = LoadConfigFile(asked.config);
  if (loaded.config.has_value()) return loaded.config->state.dir + "/keyring";
  return absl::InvalidArgumentError(absl::StrJoin(loaded.errors, "\n"));
}

int ListKeys(const Cli& cli, const KeysAsked& asked) {
  const absl::StatusOr<std::string> path = FindRing(asked);
  if (!path.ok()) return cli.FailAtFiles(path.status());
  const absl::StatusOr<std::vector<KeyRing::Entry>> entries = KeyRingFile::Read(*path);
  if (!entries.ok()) return cli.FailAtFiles(entries.status());
  Json keys = Json::array();
  std::vector<std::vector<std::string>> rows = {{"TENANT", "KEY ID"}};
  for (const KeyRing::Entry& entry : *entries) {
    keys.push_back({{"tenant", entry.tenant}, {"key_id", entry.id.ToHex()}});
    rows.push_back({NameOf(entry.tenant), entry.id.ToHex()});
  }
  return cli.Print({{"file", *path}, {"keys", keys}}, FormatTable(rows));
}

bool Confirmed(const Cli& cli, const KeysAsked& asked) {
  if (asked.yes) return true;
  cli.terminal.err << "Drop the key of tenant " << asked.tenant
                   << "? Its chunks on G3 can then never be read again. [y/N] ";
  cli.terminal.err.flush();
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "yes";
}

int DropKey(const Cli& cli, const KeysAsked& asked) {
  const absl::StatusOr<std::string> path = FindRing(asked);
  if (!path.ok()) return cli.FailAtFiles(path.status());
  if (const absl::Status there = KeyRingFile::Read(*path).status(); !there.ok()) {
    return cli.FailAtFiles(there);
  }
  const absl::StatusOr<std::unique_ptr<KeyRingFile>> ring = KeyRingFile::Open(*path);
  if (!ring.ok()) return cli.FailAtFiles(ring.status());
  std::vector<KeyRing::Entry> entries = (*ring)->entries();
  const auto entry = std::find_if(entries.begin(), entries.end(), [&asked](const auto& one) {
    return NameOf(one.tenant) == asked.tenant;
  });
  if (entry == entries.end()) {
    return cli.Fail(absl::NotFoundError(
        absl::StrCat(*path, ": tenant '", asked.tenant, "' has no key; see kvkeep keys list")));
  }
  if (!asked.yes && !cli.terminal.can_ask) {
    return cli.FailUsage("drop makes a tenant's chunks on G3 unreadable for ever: say --yes");
  }
  if (!Confirmed(cli, asked)) return cli.FailUsage("nothing was dropped");
  const std::string id = entry->id.ToHex();
  entries.erase(entry);
  const absl::Status replaced = (*ring)->Replace(std::move(entries));
  if (!replaced.ok()) return cli.Fail(replaced);
  return cli.Print({{"file", *path}, {"tenant", asked.tenant}, {"dropped_key_id", id}},
                   absl::StrFormat("dropped key %s of tenant %s; copies and backups of %s still "
                                   "hold it, wrapped\n",
                                   id, asked.tenant, *path));
}

}  // namespace

void AddKeysVerbs(CLI::App& app, Cli& cli) {
  CLI::App* keys = app.add_subcommand(
      "keys", "the tenants' keys of encryption at rest: list, drop (while no daemon runs)");
  keys->require_subcommand(1);
  keys->fallthrough();
  auto asked = std::make_shared<KeysAsked>();
  CLI::App* list = keys->add_subcommand("list", "show the tenants that have a key");
  CLI::App* drop = keys->add_subcommand(
      "drop", "forget a tenant's key, and with it all chunks of the tenant on G3");
  for (CLI::App* verb : {list, drop}) {
    CLI::Option* config = verb->add_option("--config", asked->config,
                                           "the daemon's config file, which names the key ring");
    verb->add_option("--file", asked->file, "the daemon's key ring (state.dir/keyring)")
        ->excludes(config);
  }
  drop->add_option("tenant", asked->tenant, "its name; @default for the default tenant")
      ->required();
  drop->add_flag("--yes", asked->yes, "do not ask");
  list->callback([&cli, asked] { cli.run = [&cli, asked] { return ListKeys(cli, *asked); }; });
  drop->callback([&cli, asked] { cli.run = [&cli, asked] { return DropKey(cli, *asked); }; });
}

}  // namespace kvkeep::tools
