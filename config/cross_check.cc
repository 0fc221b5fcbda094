#include "config/cross_check.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

#include <filesystem>
#include <utility>

#include "config/values.h"

namespace kvkeep {
namespace {

struct KeyAndPath {
  std::string key, path;
};

// As the file system would read it, symbolic links aside: "/a//b/." is "/a/b".
std::string Normal(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

bool IsInside(const std::string& inner, const std::string& outer) {
  return absl::StartsWith(inner, outer == "/" ? "/" : absl::StrCat(outer, "/"));
}

void Add(std::vector<Conflict>& conflicts, std::vector<std::string> keys,
         absl::string_view message) {
  conflicts.push_back({std::move(keys), std::string(message)});
}

void CheckG3Paths(const Config& config, std::vector<Conflict>& conflicts) {
  std::vector<KeyAndPath> dirs;
  for (size_t i = 0; i < config.g3.paths.size(); ++i) {
    dirs.push_back({absl::StrCat("g3.paths[", i, "].dir"), Normal(config.g3.paths[i].dir)});
  }
  for (size_t i = 0; i < dirs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const char* how = dirs[i].path == dirs[j].path           ? "is the same directory as "
                        : IsInside(dirs[i].path, dirs[j].path) ? "is inside "
                        : IsInside(dirs[j].path, dirs[i].path) ? "contains "
                                                               : nullptr;
      if (how == nullptr) continue;
      Add(conflicts, {dirs[i].key, dirs[j].key},
          absl::StrCat(dirs[i].key, ": ", QuoteForMessage(dirs[i].path), " ", how, dirs[j].key,
                       "; every path needs a directory of its own"));
    }
    if (dirs[i].path == Normal(config.state.dir)) {
      Add(conflicts, {dirs[i].key, "state.dir"},
          absl::StrCat(dirs[i].key, ": ", QuoteForMessage(dirs[i].path),
                       " is also state.dir; a path of G3 needs a directory of its own"));
    }
  }
}

void CheckArena(const G2Config& g2, std::vector<Conflict>& conflicts) {
  const bool has_dir = !g2.arena_dir.empty();
  const bool has_readonly = !g2.arena_readonly_dir.empty();
  if (g2.arena == ArenaChoice::kMount && (!has_dir || !has_readonly)) {
    const std::string missing = has_dir        ? "g2.arena_readonly_dir is"
                                : has_readonly ? "g2.arena_dir is"
                                               : "g2.arena_dir and g2.arena_readonly_dir are";
    Add(conflicts, {"g2.arena", "g2.arena_dir", "g2.arena_readonly_dir"},
        absl::StrCat("g2.arena: mount needs both directories, but ", missing, " not set"));
  } else if (has_dir != has_readonly) {
    const std::string set = has_dir ? "g2.arena_dir" : "g2.arena_readonly_dir";
    const std::string missing = has_dir ? "g2.arena_readonly_dir" : "g2.arena_dir";
    Add(conflicts, {set, missing},
        absl::StrCat(set, ": is of no use without ", missing, "; set both"));
  }
  if (has_dir && Normal(g2.arena_dir) == Normal(g2.arena_readonly_dir)) {
    Add(conflicts, {"g2.arena_readonly_dir", "g2.arena_dir"},
        "g2.arena_readonly_dir: is the same directory as g2.arena_dir; it must be a read-only bind "
        "mount of it");
  }
}

}  // namespace

std::vector<Conflict> FindConflicts(const Config& config) {
  std::vector<Conflict> conflicts;
  if (Normal(config.listen.unix_path) == Normal(config.listen.admin_path)) {
    Add(conflicts, {"listen.admin", "listen.unix"},
        "listen.admin: is the same socket as listen.unix; admin calls need a socket of their own");
  }
  CheckArena(config.g2, conflicts);
  CheckG3Paths(config, conflicts);
  // Port 0 is any free one, so two of them are two ports.
  if (!config.listen.tcp_address.empty() &&
      config.listen.tcp_address == config.metrics.listen_address &&
      !absl::EndsWith(config.listen.tcp_address, ":0")) {
    Add(conflicts, {"metrics.listen", "listen.tcp"},
        "metrics.listen: is the same address as listen.tcp; give it another port");
  }
  return conflicts;
}

}  // namespace kvkeep
