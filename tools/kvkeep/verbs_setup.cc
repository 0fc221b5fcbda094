// The verbs that give a machine a daemon: init, up, down.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "config/config.h"
#include "config/sources.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"
#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/doctor.h"
#include "tools/kvkeep/launch.h"
#include "tools/kvkeep/setup.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kAskEvery{50};
constexpr char kUnit[] = "kvkeepd.service";

struct SetupAsked {
  std::string config, log;  // files; empty: the usual place
  bool print = false, foreground = false, service = false;
  std::string patience = "60s";
};

absl::Status MakeDirectories(const fs::path& directory, fs::perms mode) {
  std::error_code error;
  if (fs::create_directories(directory, error)) fs::permissions(directory, mode, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(directory.string(), ": ", error.message()));
}

absl::Status FileError(const std::string& file) {
  return absl::FailedPreconditionError(absl::StrCat(file, ": ", std::strerror(errno)));
}

absl::Status AlreadyThere(const std::string& file) {
  return absl::AlreadyExistsError(
      absl::StrCat(file, " is there already, and stays as it is; --print shows a new one"));
}

// Writes a file, over one that is there only if `over`.
absl::Status WriteFile(const std::string& file, const std::string& text, bool over) {
  KVKEEP_RETURN_IF_ERROR(MakeDirectories(fs::path(file).parent_path(), fs::perms(0755)));
  const int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (over ? O_TRUNC : O_EXCL);
  const UniqueFd fd(open(file.c_str(), how, 0640));
  if (!fd.valid()) return errno == EEXIST ? AlreadyThere(file) : FileError(file);
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const absl::Status status = FileError(file);
    unlink(file.c_str());
    return status;
  }
  return absl::OkStatus();
}

// The user of the package's unit, by the owner of its state directory. Root: there is no such user,
// and nothing is given away.
struct Owner {
  uid_t user = 0;
  gid_t group = 0;
};
Owner OwnerOf(const SetupFacts& facts) {
  struct stat there {};
  const bool known = facts.has_unit && stat(facts.state_dir.c_str(), &there) == 0;
  return known ? Owner{there.st_uid, there.st_gid} : Owner{};
}

// Writes the config last: what it names is there, or nothing has changed but empty directories.
absl::Status Apply(const Setup& setup, const Owner& owner) {
  const LoadResult loaded = LoadConfig(setup.yaml, setup.file);
  if (!loaded.config.has_value()) {
    return absl::FailedPreconditionError(absl::StrJoin(loaded.errors, "\n"));
  }
  std::error_code ignored;
  if (fs::exists(setup.file, ignored)) return AlreadyThere(setup.file);
  for (const std::string& directory : setup.directories) {
    const bool is_new = !fs::exists(directory, ignored);
    KVKEEP_RETURN_IF_ERROR(MakeDirectories(directory, fs::perms::owner_all));
    if (!is_new || owner.user == 0) continue;
    if (chown(directory.c_str(), owner.user, owner.group) != 0) return FileError(directory);
  }
  KVKEEP_RETURN_IF_ERROR(WriteFile(setup.file, setup.yaml, false));
  if (owner.user == 0) return absl::OkStatus();
  return chown(setup.file.c_str(), 0, owner.group) == 0 ? absl::OkStatus() : FileError(setup.file);
}

// Returns what the doctor warns of, a line each.
std::string Warnings(const std::string& file) {
  const LoadResult loaded = LoadConfigSources({.file = file, .user = UserEnvironment::OfProcess()});
  std::string text;
  for (const std::string& error : loaded.errors) absl::StrAppend(&text, "error  ", error, "\n");
  if (!loaded.config.has_value()) return text;
  for (const Finding& finding : Examine(*loaded.config, Machine::This())) {
    if (finding.state == Finding::State::kOk) continue;
    absl::StrAppend(&text, StateWord(finding.state), "  ", finding.subject, ": ", finding.found,
                    "\n      ", finding.to_do, "\n");
  }
  return text;
}

std::string NotesOf(const Setup& setup) {
  std::string text;
  for (const std::string& note : setup.notes) absl::StrAppend(&text, "note  ", note, "\n");
  return text;
}

int Init(const Cli& cli, const SetupAsked& asked) {
  const SetupFacts facts = GatherFacts(FactSources::OfProcess());
  Setup setup = ChooseSetup(facts);
  if (!asked.config.empty()) setup.file = fs::absolute(asked.config).string();
  const Json said = {{"file", setup.file}, {"yaml", setup.yaml}, {"notes", setup.notes}};
  if (asked.print) return cli.Print(said, setup.yaml);
  if (const absl::Status status = Apply(setup, OwnerOf(facts)); !status.ok()) {
    return cli.Fail(status);
  }
  return cli.Print(said, absl::StrCat(setup.yaml, "\n", NotesOf(setup), Warnings(setup.file),
                                      "wrote ", setup.file, "; start the daemon: kvkeep up\n"));
}

// Returns the first line of a file; none: it has none, or cannot be read.
std::optional<std::string> FirstLineOf(const std::string& file) {
  std::ifstream from(file);
  std::string line;
  if (!std::getline(from, line)) return std::nullopt;
  return line;
}

struct Service {
  std::string binary, config;  // of a unit that is ours
  bool asked = false;          // --service: again after each boot or login
  bool is_own_config = false;  // --config
};

absl::Status StartService(const SetupFacts& facts, const Service& service) {
  if (!facts.has_systemd) {
    return absl::FailedPreconditionError(
        "--service: this machine does not run systemd; leave it out, or use --foreground");
  }
  std::vector<std::string> systemctl = {"systemctl"};
  if (!facts.is_root) systemctl.push_back("--user");
  const auto run = [&systemctl](std::initializer_list<const char*> words) {
    std::vector<std::string> all = systemctl;
    all.insert(all.end(), words.begin(), words.end());
    return RunProgram(all);
  };
  const fs::path dir = facts.is_root ? fs::path("/etc/systemd/system")
                                     : fs::path(facts.config_dir).parent_path() / "systemd/user";
  const std::string file = (dir / kUnit).string();
  const std::optional<std::string> first = FirstLineOf(file);
  const bool is_ours = first == kUnitIsOurs;
  if (facts.has_unit && !is_ours) {
    if (service.is_own_config) {
      return absl::InvalidArgumentError(
          "--config: the system's unit runs /etc/kvkeep/kvkeep.yaml; leave --config or --service "
          "out");
    }
    return service.asked ? run({"enable", "--now", kUnit}) : run({"start", kUnit});
  }
  if (!service.asked) return run({"start", kUnit});
  if (first.has_value() && !is_ours) {
    return absl::AlreadyExistsError(
        absl::StrCat(file, " is there already, and not of kvkeep up: start it by systemctl"));
  }
  KVKEEP_ASSIGN_OR_RETURN(const std::string unit,
                          ServiceUnit(service.binary, service.config, facts.is_root));
  KVKEEP_RETURN_IF_ERROR(WriteFile(file, unit, true));
  KVKEEP_RETURN_IF_ERROR(run({"daemon-reload"}));
  KVKEEP_RETURN_IF_ERROR(run({"enable", kUnit}));
  return run({"restart", kUnit});
}

// Waits until the daemon serves at `admin`: this child, unless it is 0.
absl::Status AwaitServing(const Cli& cli, const std::string& admin, pid_t child,
                          const std::string& log, client::Deadline patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  absl::Status last;
  while (std::chrono::steady_clock::now() < deadline) {
    if (child != 0 && HasEnded(child)) {
      return absl::UnavailableError(
          absl::StrCat("kvkeepd does not start; ", log, " ends with:\n", LastLines(log, 5)));
    }
    last = client::AdminClient(admin, cli.timeout()).Status().status();
    const auto listener = ListenerOf(admin);
    const bool is_it = child == 0 || (listener.ok() && *listener == child);
    if (last.ok() && is_it) return last;
    std::this_thread::sleep_for(kAskEvery);  // for the daemon's start: there is no event
  }
  return absl::DeadlineExceededError(absl::StrCat("kvkeepd does not serve within --patience ",
                                                  patience.count(), " ms: ", last.message()));
}

struct Started {
  std::string config, log;
  Config loaded;
  pid_t child = 0;  // 0: systemd runs it
};

int TellStarted(const Cli& cli, const Started& started, const std::vector<std::string>& flags) {
  uint64_t g3_bytes = 0;
  for (const G3PathConfig& path : started.loaded.g3.paths) g3_bytes += path.capacity_bytes;
  const std::string endpoint = absl::StrCat("unix://", started.loaded.listen.unix_path);
  const std::string admin = absl::StrCat("unix://", started.loaded.listen.admin_path);
  std::string text = absl::StrCat("kvkeepd serves at ", endpoint, ": ",
                                  FormatBytes(started.loaded.g2.capacity_bytes), " of memory, ",
                                  FormatBytes(g3_bytes), " of NVMe\nconfig ", started.config);
  if (started.child != 0) absl::StrAppend(&text, ", log ", started.log);
  const bool is_usual = admin == DefaultAdminSocket();
  absl::StrAppend(&text, "; stop it: kvkeep ", is_usual ? "" : absl::StrCat("--admin ", admin, " "),
                  "down\n");
  for (const std::string& flag : flags) absl::StrAppend(&text, flag, "\n");
  return cli.Print({{"started", true},
                    {"endpoint", endpoint},
                    {"admin", admin},
                    {"config", started.config},
                    {"engines", flags}},
                   text);
}

// Says that a daemon listens there already.
int TellThere(const Cli& cli, const std::string& endpoint, pid_t pid,
              const std::vector<std::string>& flags) {
  std::string text = absl::StrCat("a daemon serves already at ", endpoint, ", process ", pid, "\n");
  for (const std::string& flag : flags) absl::StrAppend(&text, flag, "\n");
  return cli.Print({{"started", false}, {"endpoint", endpoint}, {"pid", pid}, {"engines", flags}},
                   text);
}

int Up(const Cli& cli, const SetupAsked& asked) {
  const SetupFacts facts = GatherFacts(FactSources::OfProcess());
  const std::vector<std::string> flags = EngineHints(facts.engines);
  const bool is_own = !asked.config.empty();
  if (!is_own) {  // before a config is written: another one may serve here
    const auto listener = ListenerOf(cli.endpoint);
    if (listener.ok()) return TellThere(cli, cli.endpoint, *listener, flags);
    if (absl::IsPermissionDenied(listener.status())) return cli.Fail(listener.status());
  }
  const Setup setup = ChooseSetup(facts);
  Started started;
  started.config = is_own ? fs::absolute(asked.config).string() : setup.file;
  std::error_code ignored;
  if (!fs::exists(started.config, ignored)) {
    if (is_own) {
      return cli.Fail(absl::NotFoundError(absl::StrCat(
          started.config, " is not there: kvkeep init --config ", started.config, " writes it")));
    }
    if (const absl::Status status = Apply(setup, OwnerOf(facts)); !status.ok()) {
      return cli.Fail(status);
    }
    cli.terminal.err << "wrote " << setup.file << "\n" << NotesOf(setup) << Warnings(setup.file);
  }
  LoadResult loaded =
      LoadConfigSources({.file = started.config, .user = UserEnvironment::OfProcess()});
  if (!loaded.config.has_value()) {
    for (const std::string& error : loaded.errors) cli.terminal.err << "kvkeep: " << error << "\n";
    return kFailed;
  }
  started.loaded = *std::move(loaded.config);
  const std::string endpoint = absl::StrCat("unix://", started.loaded.listen.unix_path);
  if (const auto listener = ListenerOf(endpoint); listener.ok()) {
    return TellThere(cli, endpoint, *listener, flags);
  }
  const auto binary = FindDaemonBinary();
  if (!binary.ok()) return cli.Fail(binary.status());
  if (asked.foreground) return cli.Fail(BecomeDaemon(*binary, started.config));

  // The package's unit has a user of its own, who could not read what root's daemon leaves.
  if (asked.service || (facts.has_unit && facts.has_systemd && !is_own)) {
    const absl::Status status =
        StartService(facts, {*binary, started.config, asked.service, is_own});
    if (!status.ok()) return cli.Fail(status);
  } else {
    started.log = asked.log;
    if (started.log.empty()) {
      started.log = facts.is_root ? "/var/log/kvkeepd.log" : facts.state_dir + "/kvkeepd.log";
    }
    const absl::Status made =
        MakeDirectories(fs::absolute(started.log).parent_path(), fs::perms::owner_all);
    if (!made.ok()) return cli.Fail(made);
    const auto child =
        StartDetached({.binary = *binary, .config = started.config, .log = started.log});
    if (!child.ok()) return cli.Fail(child.status());
    started.child = *child;
  }
  const std::string admin = absl::StrCat("unix://", started.loaded.listen.admin_path);
  const absl::Status serving =
      AwaitServing(cli, admin, started.child, started.log, *ParseDuration(asked.patience));
  return serving.ok() ? TellStarted(cli, started, flags) : cli.Fail(serving);
}

int Down(const Cli& cli, const SetupAsked& asked) {
  const absl::Status stopped = StopListener(cli.admin_endpoint, *ParseDuration(asked.patience));
  if (!stopped.ok()) return cli.Fail(stopped);
  return cli.Print({{"stopped", true}}, "kvkeepd has stopped\n");
}

}  // namespace

void AddSetupVerbs(CLI::App& app, Cli& cli) {
  auto asked = std::make_shared<SetupAsked>();
  const auto add_config = [&asked](CLI::App* verb) {
    verb->add_option("--config", asked->config,
                     "the file; else /etc/kvkeep/kvkeep.yaml, or ~/.config/kvkeep/kvkeep.yaml for "
                     "a user");
  };
  CLI::App* init = app.add_subcommand(
      "init",
      "write a config for this machine: memory, drives, each with its reason. Never over a file "
      "that is there");
  add_config(init);
  init->add_flag("--print", asked->print, "print it, and write nothing");
  init->callback([&cli, asked] { cli.run = [&cli, asked] { return Init(cli, *asked); }; });

  CLI::App* up = app.add_subcommand(
      "up",
      "start the daemon, and wait until it serves; writes a config first, as init does, if there "
      "is none. Does nothing if a daemon serves already");
  add_config(up);
  up->add_flag("--service", asked->service,
               "let systemd run it, now and after each boot (a user's: after each login)");
  up->add_flag("--foreground", asked->foreground, "become the daemon, as a container wants it")
      ->excludes("--service");
  up->add_option("--log", asked->log,
                 "the file for the daemon's log; else /var/log/kvkeepd.log, or kvkeepd.log in a "
                 "user's state directory");
  up->add_option("--patience", asked->patience, "the longest wait until it serves; 60s")
      ->check(BadDuration);
  up->callback([&cli, asked] { cli.run = [&cli, asked] { return Up(cli, *asked); }; });

  CLI::App* down = app.add_subcommand(
      "down", "stop the daemon that listens at --admin: SIGTERM, which drains it, and wait");
  down->add_option("--patience", asked->patience, "the longest wait until it has stopped; 60s")
      ->check(BadDuration);
  down->callback([&cli, asked] { cli.run = [&cli, asked] { return Down(cli, *asked); }; });
}

}  // namespace kvkeep::tools
