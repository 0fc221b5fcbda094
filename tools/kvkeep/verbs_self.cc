// The verbs about the machine and about this tool: doctor, completion, man.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "config/embedded.h"
#include "config/sources.h"
#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/command_tree.h"
#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {
namespace {

constexpr char kSystemConfig[] = "/etc/kvkeep/kvkeep.yaml";

int Doctor(const Cli& cli, const std::string& asked) {
  ConfigSources sources{.file = asked, .user = UserEnvironment::OfProcess()};
  std::error_code ignored;
  if (asked.empty() && std::filesystem::exists(kSystemConfig, ignored))
    sources.file = kSystemConfig;
  const LoadResult loaded = LoadConfigSources(sources);
  if (!loaded.config.has_value()) {
    for (const std::string& error : loaded.errors) cli.terminal.err << "kvkeep: " << error << "\n";
    return kFailed;
  }
  Json list = Json::array();
  std::string text = absl::StrCat(
      "for ", sources.file.empty() ? "the built-in default config" : sources.file, "\n");
  bool failed = false;
  for (const Finding& finding : Examine(*loaded.config, Machine::This())) {
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
  return cli.Print({{"config", sources.file}, {"findings", list}}, text, failed ? kFailed : kOk);
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
  auto config = std::make_shared<std::string>();
  CLI::App* doctor = app.add_subcommand(
      "doctor",
      "what of this machine is in the way of a daemon, and what to do: memory, huge pages, "
      "limits, io_uring, clock, the paths of G3. Exit code 1: something is");
  doctor->add_option("--config", *config,
                     "the daemon's file; else /etc/kvkeep/kvkeep.yaml, else the built-in default");
  doctor->callback([&cli, config] { cli.run = [&cli, config] { return Doctor(cli, *config); }; });

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
