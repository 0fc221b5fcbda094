#include "config/sources.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include <algorithm>

#include "config/schema.h"
#include "config/suggest.h"

namespace kvkeep {
namespace {

// Returns whether the variable was meant for a key: it begins like the variables of a section.
// Others that begin with KVKEEP_ are the tools' own.
bool LooksLikeKey(absl::string_view name) {
  const auto& sections = ConfigSections();
  return std::any_of(sections.begin(), sections.end(), [&](const ConfigSection& section) {
    return absl::StartsWith(name, absl::StrCat(VariableName(section.name), "_"));
  });
}

std::string Nearest(absl::string_view name) {
  constexpr size_t kFarthest = 3;
  std::string best;
  size_t distance = kFarthest + 1;
  for (const std::string& path : SettablePaths()) {
    const std::string known = VariableName(path);
    if (const size_t away = EditDistance(name, known); away < distance) {
      distance = away;
      best = known;
    }
  }
  return best.empty() ? "" : absl::StrCat(", did you mean ", best, "?");
}

}  // namespace

std::vector<std::string> SettablePaths() {
  std::vector<std::string> paths;
  const ConfigList* last = nullptr;
  for (const ConfigKey& key : ConfigKeys()) {
    const ConfigList* list = FindConfigList(key.list());
    if (list == nullptr) {
      paths.push_back(key.path);
    } else if (list != last && std::find(paths.begin(), paths.end(), list->path) == paths.end()) {
      paths.push_back(list->path);
    }
    last = list;
  }
  return paths;
}

std::string VariableName(absl::string_view path) {
  return absl::StrCat("KVKEEP_", absl::AsciiStrToUpper(absl::StrReplaceAll(path, {{".", "_"}})));
}

void ConfigSources::AddEnvironment(const char* const* environment) {
  constexpr size_t kLongestName = 64;
  std::vector<std::pair<std::string, std::string>> known;  // by variable
  for (const std::string& path : SettablePaths()) known.emplace_back(VariableName(path), path);
  for (const GoneKey& key : GoneKeys()) known.emplace_back(VariableName(key.path), key.path);
  for (; *environment != nullptr; ++environment) {
    const absl::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == absl::string_view::npos || !absl::StartsWith(entry, "KVKEEP_")) continue;
    const std::string name(entry.substr(0, equals));
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const auto& item) { return item.first == name; });
    if (found != known.end()) {
      settings.push_back({found->second, std::string(entry.substr(equals + 1)),
                          absl::StrCat("environment ", name)});
    } else if (LooksLikeKey(name) && name.size() <= kLongestName) {
      warnings.push_back(absl::StrCat("environment ", name, ": is no key's", Nearest(name)));
    }
  }
}

void ConfigSources::AddFlag(const std::string& path, const std::string& value) {
  settings.push_back({path, value, absl::StrCat("flag --", path)});
}

}  // namespace kvkeep
