// The verbs and options of a command line as plain values, and completions for shells and a manual
// page made from them. Pure; cli.cc fills it from CLI11's tree.
#pragma once

#include <absl/strings/string_view.h>

#include <optional>
#include <string>
#include <vector>

namespace kvkeep::tools {

struct CommandOption {
  std::string name;   // "--json", "-o", "KEY"
  std::string other;  // a second name: "--output"; may be empty
  std::string help;
  bool takes_value = false;
  bool positional = false;
};

struct Command {
  std::string name;
  std::string help;
  std::vector<CommandOption> options;
  std::vector<Command> commands;
};

// Returns the script for "bash", "zsh" or "fish"; none for other shells.
std::optional<std::string> CompletionScript(absl::string_view shell, const Command& root);

// Returns the manual page, of section 1, as troff.
std::string ManualPage(const Command& root, const std::string& version);

}  // namespace kvkeep::tools
