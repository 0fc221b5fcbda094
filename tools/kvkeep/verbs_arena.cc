// The verbs for G2's memory that outlives the daemon: arena status, arena drop.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <CLI/CLI.hpp>

#include "client/admin.h"
#include "config/config.h"
#include "tiers/base/status_macros.h"
#include "tiers/host/arena_remains.h"
#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

struct Where {
  std::string config;  // the daemon's file
  std::string dir;     // or its g2.arena_dir itself
  std::function<bool()> admin_is_given;
};

absl::StatusOr<Config> Load(const std::string& file) {
  const LoadResult loaded = LoadConfigFile(file);
  if (loaded.config.has_value()) return *loaded.config;
  return absl::InvalidArgumentError(absl::StrJoin(loaded.errors, "\n"));
}

// Returns the mount's directory. InvalidArgument: neither option was given, or the file is invalid.
absl::StatusOr<std::string> FindDir(const Where& where) {
  if (!where.dir.empty()) return where.dir;
  if (where.config.empty()) {
    return absl::InvalidArgumentError("give --config FILE or --dir DIR");
  }
  KVKEEP_ASSIGN_OR_RETURN(const Config config, Load(where.config));
  if (!config.g2.arena_dir.empty()) return config.g2.arena_dir;
  return absl::NotFoundError(
      absl::StrCat(where.config, ": g2.arena_dir is not set, so G2 does not outlive the daemon"));
}

// Returns the daemon's admin socket: from the command line, else from the file.
absl::StatusOr<std::string> FindAdmin(const Cli& cli, const Where& where) {
  if (where.config.empty() || where.admin_is_given()) return cli.admin_endpoint;
  KVKEEP_ASSIGN_OR_RETURN(const Config config, Load(where.config));
  return absl::StrCat("unix://", config.listen.admin_path);
}

int PrintDaemon(const Cli& cli, const v1::StatusResponse& status) {
  return cli.Print(
      {{"source", "daemon"},
       {"pid", status.pid()},
       {"arena", status.arena()},
       {"capacity_bytes", status.g2().capacity_bytes()},
       {"used_bytes", status.g2().used_bytes()},
       {"chunks", status.g2().chunks()}},
      absl::StrFormat("%s\nused by kvkeepd, pid %d: %s of %s, %d chunks\n", status.arena(),
                      status.pid(), FormatBytes(status.g2().used_bytes()),
                      FormatBytes(status.g2().capacity_bytes()), status.g2().chunks()));
}

int PrintMount(const Cli& cli, const std::string& dir, const ArenaRemains& remains) {
  std::string text = absl::StrFormat("%s (%s): %s held by %d segments\n", dir, remains.filesystem,
                                     FormatBytes(remains.held_bytes), remains.segments);
  absl::StrAppend(
      &text, remains.in_use ? "a daemon uses it (arena.lock is locked)\n" : "no daemon uses it\n");
  if (!remains.id.empty()) {
    absl::StrAppend(&text, "identity: ", remains.id, "\n");
  } else if (remains.files > 0) {
    absl::StrAppend(&text, "no identity: the next start makes it anew\n");
  }
  if (!remains.in_use && remains.held_bytes > 0) {
    absl::StrAppend(&text,
                    "the next start uses it again; 'kvkeep arena drop' gives the memory back\n");
  }
  return cli.Print({{"source", "mount"},
                    {"dir", dir},
                    {"filesystem", remains.filesystem},
                    {"in_use", remains.in_use},
                    {"id", remains.id},
                    {"segments", remains.segments},
                    {"held_bytes", remains.held_bytes}},
                   text);
}

int ArenaStatus(const Cli& cli, const Where& where) {
  if (where.dir.empty()) {
    const absl::StatusOr<std::string> endpoint = FindAdmin(cli, where);
    if (!endpoint.ok()) return cli.FailAtFiles(endpoint.status());
    client::AdminClient admin(*endpoint, cli.timeout());
    const auto status = admin.Status();
    if (status.ok()) return PrintDaemon(cli, *status);
    if (where.config.empty()) {
      cli.terminal.err << "kvkeep: without a daemon, say where to look: --config FILE or --dir "
                          "DIR\n";
      return cli.Fail(status.status());
    }
  }
  const absl::StatusOr<std::string> dir = FindDir(where);
  if (!dir.ok()) return cli.FailAtFiles(dir.status());
  const absl::StatusOr<ArenaRemains> remains = LookAtArena(*dir);
  if (!remains.ok()) return cli.FailAtFiles(remains.status());
  return PrintMount(cli, *dir, *remains);
}

int DropRemains(const Cli& cli, const Where& where, bool yes) {
  const absl::StatusOr<std::string> dir = FindDir(where);
  if (!dir.ok()) return cli.FailAtFiles(dir.status());
  if (!yes &&
      !cli.Agreed(absl::StrCat("forget what G2 held in ", *dir, " and give the memory back"))) {
    return kUsage;
  }
  const absl::StatusOr<DroppedArena> dropped = DropArena(*dir);
  if (!dropped.ok()) return cli.FailAtFiles(dropped.status());
  const uint64_t back = dropped->bytes - dropped->still_held_bytes;
  std::string text = absl::StrFormat("gave back %s (%d bytes, %d files)\n", FormatBytes(back), back,
                                     dropped->files);
  if (dropped->still_held_bytes > 0) {
    absl::StrAppend(&text, FormatBytes(dropped->still_held_bytes),
                    " more are given back when the clients that map them end\n");
  }
  return cli.Print({{"dir", *dir},
                    {"files", dropped->files},
                    {"given_back_bytes", back},
                    {"still_held_bytes", dropped->still_held_bytes}},
                   text);
}

}  // namespace

void AddArenaVerbs(CLI::App& app, Cli& cli) {
  CLI::App* arena = app.add_subcommand(
      "arena", "the memory of G2 on a mount, which outlives the daemon: status, drop");
  arena->require_subcommand(1);
  arena->fallthrough();
  auto where = std::make_shared<Where>();
  where->admin_is_given = [admin = app.get_option("--admin")] { return admin->count() > 0; };
  auto yes = std::make_shared<bool>(false);
  CLI::App* status = arena->add_subcommand(
      "status", "show the memory and its holder: from the daemon, or from the mount without one");
  CLI::App* drop = arena->add_subcommand("drop", "give the memory back, if no daemon uses it");
  for (CLI::App* verb : {status, drop}) {
    CLI::Option* config = verb->add_option("--config", where->config,
                                           "the daemon's config file, which names the directory");
    verb->add_option("--dir", where->dir, "its g2.arena_dir itself")->excludes(config);
  }
  drop->add_flag("--yes", *yes, "do not ask");
  status->callback([&cli, where] { cli.run = [&cli, where] { return ArenaStatus(cli, *where); }; });
  drop->callback([&cli, where, yes] {
    cli.run = [&cli, where, yes] { return DropRemains(cli, *where, *yes); };
  });
}

}  // namespace kvkeep::tools
