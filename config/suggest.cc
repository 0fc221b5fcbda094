#include "config/suggest.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <vector>

#include "config/schema.h"

namespace kvkeep {
namespace {

constexpr size_t kLongestGuessed = 64;

constexpr GoneKey kGoneKeys[] = {
    {"g4.encryption", "what is written to G4 is always encrypted; take the key out"},
};

// Returns every path that exists: sections, lists, keys; parents before children.
std::vector<std::string> AllPaths() {
  std::vector<std::string> paths;
  for (const ConfigSection& section : ConfigSections()) {
    paths.push_back(section.name);
    for (const ConfigList& list : ConfigLists()) {
      if (absl::StartsWith(list.path, absl::StrCat(section.name, "."))) paths.push_back(list.path);
    }
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.section() == section.name) paths.push_back(key.path);
    }
  }
  return paths;
}

struct SplitPath {
  absl::string_view parent, name;
};
SplitPath SplitAtLastDot(absl::string_view path) {
  const size_t dot = path.rfind('.');
  if (dot == absl::string_view::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

// Returns how many letters a misspelling of `name` may change; more changes make it another word.
size_t AllowedDistance(absl::string_view name) {
  return name.size() <= 3 ? 1 : name.size() <= 7 ? 2 : 3;
}

}  // namespace

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::span<const GoneKey> GoneKeys() { return kGoneKeys; }

std::string WhatToDoIfGone(absl::string_view path) {
  for (const GoneKey& key : kGoneKeys) {
    if (path == key.path) return absl::StrCat(": ", key.to_do);
  }
  return "";
}

std::string SuggestKey(absl::string_view parent, absl::string_view name) {
  std::string gone = WhatToDoIfGone(absl::StrCat(parent, ".", name));
  if (!gone.empty()) return gone;
  std::string best;
  size_t best_score = SIZE_MAX;
  std::vector<std::string> known_here;
  for (const std::string& path : AllPaths()) {
    const SplitPath candidate = SplitAtLastDot(path);
    const bool here = candidate.parent == parent;
    if (here) known_here.emplace_back(candidate.name);
    if (name.size() > kLongestGuessed) continue;
    if (parent.empty() && !here && name == path) {  // a whole path as one word
      return absl::StrCat("; write '", candidate.name, "' under '", candidate.parent, ":'");
    }
    // A right name in the wrong place is as good as a misspelling in the right place.
    size_t score = EditDistance(name, candidate.name);
    const size_t allowed = here ? AllowedDistance(name) : 0;
    if (score > allowed || score == name.size()) continue;
    if (!here) score += 1;
    if (score < best_score) {
      best_score = score;
      best = path;
    }
  }
  if (!best.empty()) return absl::StrCat(", did you mean '", best, "'?");
  return absl::StrCat("; known here: ", absl::StrJoin(known_here, ", "));
}

}  // namespace kvkeep
