// The verbs about the machine and about this tool: doctor, completion, man.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "config/embedded.h"
#include "config/sources.h"
#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/command_tree.h"
#include "tools/kvkeep/doctor.h"
#include "tools/kvkeep/doctor_g4.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

constexpr char kSystemConfig[] = "/etc/kvkeep/kvkeep.yaml";

struct DoctorAsked {
  std::string config;
  bool disk_speed = false;
  std::string disk_bytes = "512MiB";
};

// Returns the measured numbers, where there are any.
Json PathsJson(const std::vector<MeasuredPath>& paths) {
  Json list = Json::array();
  for (const MeasuredPath& path : paths) {
    const DiskSpeed speed = path.speed.ok() ? *path.speed : DiskSpeed{};
    list.push_back({{"path", path.dir},
                    {"measured", path.speed.ok()},
                    {"written_bytes", speed.written_bytes},
                    {"read_bytes", speed.read_bytes},
                    {"write_bytes_per_second", speed.write_bytes_per_second},
                    {"read_bytes_per_second", speed.read_bytes_per_second}});
  }
  return list;
}

int Doctor(const Cli& cli, const DoctorAsked& asked) {
  ConfigSources sources{.file = asked.config, .user = UserEnvironment::OfProcess()};
  std::error_code ignored;
  if (asked.config.empty() && std::filesystem::exists(kSystemConfig, ignored)) {
    sources.file = kSystemConfig;
  }
  const LoadResult loaded = LoadConfigSources(sources);
  if (!loaded.config.has_value()) {
    for (const std::string& error : loaded.errors) cli.terminal.err << "kvkeep: " << error << "\n";
    return kFailed;
  }
  Json list = Json::array();
  std::string text = absl::StrCat(
      "for ", sources.file.empty() ? "the built-in default config" : sources.file, "\n");
  const Machine machine = Machine::This();
  std::vector<Finding> findings = Examine(*loaded.config, machine);
  for (Finding& finding : ExamineG4(*loaded.config, machine)) {
    findings.push_back(std::move(finding));
  }
  std::vector<MeasuredPath> paths;
  if (asked.disk_speed) {
    paths = MeasurePaths(*loaded.config, {.bytes = *ParseSize(asked.disk_bytes)});
    const std::vector<Finding> speeds = JudgeSpeeds(*loaded.config, paths);
    findings.insert(findings.end(), speeds.begin(), speeds.end());
  }
  bool failed = false;
  for (const Finding& finding : findings) {
    failed = failed || finding.state == Finding::State::kFail;
    const Color color = finding.state == Finding::State::kOk     ? Color::kGreen
                        : finding.state == Finding::State::kWarn ? Color::kYellow
                                                                 : Color::kRed;
    std::string word = StateWord(finding.state);
    list.push_back({{"subject", finding.subject},
                    {"state", word},
                    {"found", finding.found},
                    {"to_do", finding.to_do}});
    word.resize(4, ' ');
    absl::StrAppend(&text, InColor(word, color, cli.terminal.color), "  ", finding.subject, ": ",
                    finding.found, "\n");
    if (!finding.to_do.empty()) absl::StrAppend(&text, "      ", finding.to_do, "\n");
  }
  return cli.Print(
      {{"config", sources.file}, {"findings", list}, {"disk_speeds", PathsJson(paths)}}, text,
      failed ? kFailed : kOk);
}

CommandOption ToOption(const CLI::Option& option) {
  CommandOption to{.help = option.get_description(),
                   .takes_value = option.get_type_size() != 0,
                   .positional = option.get_positional()};
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (names.empty()) {
    to.positional = true;
    names.push_back(option.get_name(true));
  }
  to.name = names[0];
  if (names.size() > 1) to.other = names[1];
  return to;
}

Command ToCommand(const CLI::App& app) {
  Command command{.name = app.get_name(), .help = app.get_description()};
  for (const CLI::Option* option : app.get_options()) command.options.push_back(ToOption(*option));
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) {
    command.commands.push_back(ToCommand(*below));
  }
  return command;
}

}  // namespace

void AddSelfVerbs(CLI::App& app, Cli& cli) {
  auto asked = std::make_shared<DoctorAsked>();
  CLI::App* doctor =
      app.add_subcommand("doctor",
                         "check this machine for a daemon, and say what to do: memory, huge pages, "
                         "limits, io_uring, clock, GPUs, the paths of G3, G4 (its files, and "
                         "whether it answers). Exit code 1: a check failed");
  doctor->add_option(
      "--config", asked->config,
      "the daemon's config file; else /etc/kvkeep/kvkeep.yaml, else the built-in default");
  doctor->add_flag("--disk-speed", asked->disk_speed,
                   "measure the write and read speed of each path of G3, with a temporary file; "
                   "slows down other users of the drive meanwhile");
  doctor
      ->add_option("--disk-bytes", asked->disk_bytes,
                   "bytes to write to each path, at most a tenth of its free space; 512MiB")
      ->check(BadSizeAboveZero);
  doctor->callback([&cli, asked] { cli.run = [&cli, asked] { return Doctor(cli, *asked); }; });

  auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      app.add_subcommand("completion", "print a shell's completion of this tool");
  completion->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([&app, &cli, shell] {
    cli.run = [&app, &cli, shell] {
      cli.terminal.out << *CompletionScript(*shell, ToCommand(app));
      return kOk;
    };
  });
  app.add_subcommand("man", "print the manual page of this tool: kvkeep man | man -l -")
      ->callback([&app, &cli] {
        cli.run = [&app, &cli] {
          cli.terminal.out << ManualPage(ToCommand(app), KVKEEP_VERSION);
          return kOk;
        };
      });
}

}  // namespace kvkeep::tools
