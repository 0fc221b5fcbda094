// The verbs that give a machine a daemon: init, up, down.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

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

// Writes a new file, and nothing over one that is there.
absl::Status WriteNew(const std::string& file, const std::string& text) {
  KVKEEP_RETURN_IF_ERROR(MakeDirectories(fs::path(file).parent_path(), fs::perms(0755)));
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
  if (!fd.valid() && errno == EEXIST) {
    return absl::AlreadyExistsError(
        absl::StrCat(file, " is there already, and stays as it is; --print shows a new one"));
  }
  const auto failed = [&file] {
    return absl::FailedPreconditionError(absl::StrCat(file, ": ", std::strerror(errno)));
  };
  if (!fd.valid()) return failed();
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const absl::Status status = failed();
    unlink(file.c_str());
    return status;
  }
  return absl::OkStatus();
}

absl::Status Apply(const Setup& setup) {
  KVKEEP_RETURN_IF_ERROR(WriteNew(setup.file, setup.yaml));
  for (const std::string& directory : setup.directories) {
    KVKEEP_RETURN_IF_ERROR(MakeDirectories(directory, fs::perms::owner_all));
  }
  return absl::OkStatus();
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
  Setup setup = ChooseSetup(GatherFacts(FactSources::OfProcess()));
  if (!asked.config.empty()) setup.file = asked.config;
  if (asked.print) {
    return cli.Print({{"file", setup.file}, {"yaml", setup.yaml}, {"notes", setup.notes}},
                     setup.yaml);
  }
  if (const absl::Status status = Apply(setup); !status.ok()) return cli.Fail(status);
  return cli.Print({{"file", setup.file}, {"yaml", setup.yaml}, {"notes", setup.notes}},
                   absl::StrCat(setup.yaml, "\n", NotesOf(setup), Warnings(setup.file), "wrote ",
                                setup.file, "; start the daemon: kvkeep up\n"));
}

bool SystemHasUnit() {
  std::error_code ignored;
  for (const char* const dir :
       {"/etc/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"}) {
    if (fs::exists(absl::StrCat(dir, kUnit), ignored)) return true;
  }
  return false;
}

// Has systemd run the daemon. `enable`: and again after each boot or login.
absl::Status StartService(const SetupFacts& facts, const std::string& binary,
                          const std::string& config, bool enable) {
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
  if (!facts.is_root || !SystemHasUnit()) {
    const std::string dir = facts.is_root ? std::string("/etc/systemd/system")
                                          : absl::StrCat(facts.config_dir, "/../systemd/user");
    const absl::Status written =
        WriteNew(fs::path(absl::StrCat(dir, "/", kUnit)).lexically_normal().string(),
                 ServiceUnit(binary, config, facts.is_root));
    if (!written.ok() && !absl::IsAlreadyExists(written)) return written;
    KVKEEP_RETURN_IF_ERROR(run({"daemon-reload"}));
  }
  return enable ? run({"enable", "--now", kUnit}) : run({"start", kUnit});
}

absl::Status AwaitServing(const Cli& cli, const std::string& admin, pid_t child,
                          const std::string& log, client::Deadline patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  absl::Status last;
  while (std::chrono::steady_clock::now() < deadline) {
    last = client::AdminClient(admin, cli.timeout()).Status().status();
    if (last.ok()) return last;
    if (child != 0 && HasEnded(child)) {
      return absl::UnavailableError(
          absl::StrCat("kvkeepd does not start; ", log, " ends with:\n", LastLines(log, 5)));
    }
    std::this_thread::sleep_for(kAskEvery);  // for the daemon's start: there is no event
  }
  return absl::DeadlineExceededError(absl::StrCat("kvkeepd does not serve within --patience ",
                                                  patience.count(), " ms: ", last.message()));
}

int Up(const Cli& cli, const SetupAsked& asked) {
  const SetupFacts facts = GatherFacts(FactSources::OfProcess());
  const Setup setup = ChooseSetup(facts);
  const std::vector<std::string> flags = EngineHints(facts.engines);
  const std::string hints = absl::StrCat(absl::StrJoin(flags, "\n"), flags.empty() ? "" : "\n");
  const auto listener = ListenerOf(cli.endpoint);
  if (listener.ok()) {
    return cli.Print(
        {{"started", false}, {"endpoint", cli.endpoint}, {"pid", *listener}, {"engines", flags}},
        absl::StrCat("a daemon serves already, process ", *listener, ": kvkeep status\n", hints));
  }
  if (absl::IsPermissionDenied(listener.status())) return cli.Fail(listener.status());
  const std::string file = asked.config.empty() ? setup.file : asked.config;
  std::error_code ignored;
  std::string made;
  if (!fs::exists(file, ignored)) {
    if (!asked.config.empty()) {
      return cli.Fail(absl::NotFoundError(
          absl::StrCat(file, " is not there: kvkeep init --config ", file, " writes it")));
    }
    if (const absl::Status status = Apply(setup); !status.ok()) return cli.Fail(status);
    made = absl::StrCat("wrote ", file, "\n", NotesOf(setup), Warnings(file));
  }
  cli.terminal.err << made;
  const LoadResult loaded = LoadConfigSources({.file = file, .user = UserEnvironment::OfProcess()});
  if (!loaded.config.has_value()) {
    for (const std::string& error : loaded.errors) cli.terminal.err << "kvkeep: " << error << "\n";
    return kFailed;
  }
  const auto binary = FindDaemonBinary();
  if (!binary.ok()) return cli.Fail(binary.status());
  if (asked.foreground) return cli.Fail(BecomeDaemon(*binary, file));

  std::string log = asked.log;
  if (log.empty()) log = facts.is_root ? "/var/log/kvkeepd.log" : facts.state_dir + "/kvkeepd.log";
  pid_t child = 0;
  // The package's unit has a user of its own, who could not read what root's daemon leaves.
  const bool by_unit = asked.service || (facts.is_root && facts.has_systemd &&
                                         asked.config.empty() && SystemHasUnit());
  if (by_unit) {
    const absl::Status status = StartService(facts, *binary, file, asked.service);
    if (!status.ok()) return cli.Fail(status);
  } else {
    const absl::Status made_state = MakeDirectories(facts.state_dir, fs::perms::owner_all);
    if (!made_state.ok()) return cli.Fail(made_state);
    const auto started = StartDetached({.binary = *binary, .config = file, .log = log});
    if (!started.ok()) return cli.Fail(started.status());
    child = *started;
  }
  const std::string admin = absl::StrCat("unix://", loaded.config->listen.admin_path);
  const absl::Status serving = AwaitServing(cli, admin, child, log, *ParseDuration(asked.patience));
  if (!serving.ok()) return cli.Fail(serving);
  uint64_t g3_bytes = 0;
  for (const G3PathConfig& path : loaded.config->g3.paths) g3_bytes += path.capacity_bytes;
  const std::string endpoint = absl::StrCat("unix://", loaded.config->listen.unix_path);
  return cli.Print(
      {{"started", true},
       {"endpoint", endpoint},
       {"admin", admin},
       {"config", file},
       {"engines", flags}},
      absl::StrCat("kvkeepd serves at ", endpoint, ": ",
                   FormatBytes(loaded.config->g2.capacity_bytes), " of memory, ",
                   FormatBytes(g3_bytes), " of NVMe\n", "config ", file,
                   by_unit ? "" : absl::StrCat(", log ", log), "; stop it: kvkeep down\n", hints));
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
