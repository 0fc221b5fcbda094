#include "tools/kvkeep/command_tree.h"

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>

namespace kvkeep::tools {
namespace {

// Calls `visit` for a command and all its subcommands; `path` is "" for the root, then "config",
// "config show".
void Walk(const Command& command, const std::string& path,
          absl::FunctionRef<void(const Command&, const std::string&)> visit) {
  visit(command, path);
  for (const Command& below : command.commands) {
    Walk(below, absl::StrCat(path, path.empty() ? "" : " ", below.name), visit);
  }
}

// Returns the words that may follow `command`, besides files: verbs, its options and the root's.
std::vector<std::string> WordsAfter(const Command& command, const Command& root) {
  std::vector<std::string> words;
  for (const Command& below : command.commands) words.push_back(below.name);
  const auto add = [&](const Command& from) {
    for (const CommandOption& option : from.options) {
      if (option.positional) continue;
      words.push_back(option.name);
      if (!option.other.empty()) words.push_back(option.other);
    }
  };
  add(command);
  if (&command != &root) add(root);
  return words;
}

// Returns the body of a shell's case over the verbs typed so far.
std::string Cases(const Command& root) {
  std::string cases;
  Walk(root, "", [&](const Command& command, const std::string& path) {
    absl::StrAppend(&cases, "    '", path, "') words='",
                    absl::StrJoin(WordsAfter(command, root), " "), "' ;;\n");
  });
  return cases;
}

std::string Paths(const Command& root) {
  std::vector<std::string> paths;
  Walk(root, "", [&](const Command&, const std::string& path) {
    if (!path.empty()) paths.push_back(absl::StrReplaceAll(path, {{" ", "/"}}));
  });
  return absl::StrJoin(paths, " ");
}

std::string Bash(const Command& root) {
  return absl::StrCat(
      "# bash completion of ", root.name, "; made by '", root.name, " completion bash'\n_",
      root.name, "() {\n  local path='' next word words i\n  local verbs=' ", Paths(root),
      " '\n  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    word=${COMP_WORDS[i]}\n    next=${path:+$path/}$word\n"
      "    [[ $verbs == *\" $next \"* ]] && path=$next\n  done\n  case ${path//\\// } in\n",
      Cases(root),
      "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\n"
      "complete -o default -F _",
      root.name, " ", root.name, "\n");
}

std::string Zsh(const Command& root) {
  return absl::StrCat(
      "#compdef ", root.name, "\n# made by '", root.name, " completion zsh'\n_", root.name,
      "() {\n  local path_='' next word words_ i\n  local verbs=' ", Paths(root),
      " '\n  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    word=${words[i]}\n    next=${path_:+$path_/}$word\n"
      "    [[ $verbs == *\" $next \"* ]] && path_=$next\n  done\n  case ${path_//\\// } in\n",
      absl::StrReplaceAll(Cases(root), {{" words=", " words_="}}),
      "  esac\n  compadd -- ${=words_}\n  _files\n}\nif [[ $funcstack[1] == _", root.name,
      " ]]; then _", root.name, "; else compdef _", root.name, " ", root.name, "; fi\n");
}

std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string Fish(const Command& root) {
  std::string script = absl::StrCat("# fish completion of ", root.name, "; made by '", root.name,
                                    " completion fish'\n");
  Walk(root, "", [&](const Command& command, const std::string& path) {
    std::string condition = "__fish_use_subcommand";
    if (!path.empty()) {
      condition =
          absl::StrCat("__fish_seen_subcommand_from ",
                       absl::StrReplaceAll(path, {{" ", "; and __fish_seen_subcommand_from "}}));
    }
    const std::string head = absl::StrCat("complete -c ", root.name, " -n '", condition, "'");
    for (const Command& below : command.commands) {
      absl::StrAppend(&script, head, " -f -a ", below.name, " -d ", FishQuoted(below.help), "\n");
    }
    for (const CommandOption& option : command.options) {
      if (option.positional) continue;
      absl::StrAppend(&script, path.empty() ? absl::StrCat("complete -c ", root.name) : head);
      for (const std::string& name : {option.name, option.other}) {
        if (name.size() == 2) absl::StrAppend(&script, " -s ", name.substr(1));
        if (name.size() > 2) absl::StrAppend(&script, " -l ", name.substr(2));
      }
      absl::StrAppend(&script, option.takes_value ? " -r" : "", " -d ", FishQuoted(option.help),
                      "\n");
    }
  });
  return script;
}

// Escapes text for troff: a line that begins with a dot or quote would be a request.
std::string Troff(const std::string& text) {
  const std::string plain = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"\n", " "}});
  const bool request = !plain.empty() && (plain[0] == '.' || plain[0] == '\'');
  return request ? absl::StrCat("\\&", plain) : plain;
}

std::string TroffOptions(const Command& command) {
  std::string text;
  for (const CommandOption& option : command.options) {
    absl::StrAppend(&text, ".TP\n.B ", Troff(option.name),
                    option.other.empty() ? "" : absl::StrCat(", ", Troff(option.other)), "\n",
                    Troff(option.help), "\n");
  }
  return text;
}

}  // namespace

std::optional<std::string> CompletionScript(absl::string_view shell, const Command& root) {
  if (shell == "bash") return Bash(root);
  if (shell == "zsh") return Zsh(root);
  if (shell == "fish") return Fish(root);
  return std::nullopt;
}

std::string ManualPage(const Command& root, const std::string& version) {
  std::string page = absl::StrCat(
      ".TH ", root.name, " 1 \"\" \"", root.name, " ", version, "\"\n", ".SH NAME\n", root.name,
      " \\- talks to kvkeepd, the KV cache ", "daemon of this node\n.SH SYNOPSIS\n.B ", root.name,
      "\n[OPTIONS] VERB [ARGUMENTS]\n.SH DESCRIPTION\n", Troff(root.help), "\n.SH OPTIONS\n",
      TroffOptions(root), ".SH VERBS\n");
  Walk(root, "", [&](const Command& command, const std::string& path) {
    if (path.empty()) return;
    absl::StrAppend(&page, ".SS ", Troff(path), "\n", Troff(command.help), "\n",
                    TroffOptions(command));
  });
  return page + ".SH SEE ALSO\n.BR kvkeepd (8)\n";
}

}  // namespace kvkeep::tools
