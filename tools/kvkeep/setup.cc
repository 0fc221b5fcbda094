#include "tools/kvkeep/setup.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "config/limits.h"
#include "config/values.h"
#include "tiers/base/units.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

constexpr uint64_t kLeastG2 = 1 * kGiB;
constexpr uint64_t kLeastG3 = 1 * kGiB;
// A cgroup's limit holds G2, staging memory (a quarter of G2 at most) and the rest of the daemon.
constexpr double kOfMount = 0.998;  // the rest is for the arena's own notes (g2.arena_dir)
constexpr uint64_t kBesideG2 = 2 * kGiB;
constexpr double kWithStaging = 1.3;
// A file system that is so empty was made for this.
constexpr double kEmpty = 0.8;
// What the daemon notes of each chunk, by deploy/README.md; at most an eighth of the memory.
constexpr uint64_t kBytesOfNotes = 800;
constexpr uint64_t kPartOfNotes = 8;

// G2 is taken in segments of a GiB. A smaller one has smaller segments.
constexpr uint64_t kSmallSegment = 64 * kMiB;

// Returns `bytes` rounded down to whole GiB, or to kSmallSegment if it is below one.
uint64_t Rounded(uint64_t bytes) {
  const uint64_t unit = bytes >= kGiB ? kGiB : kSmallSegment;
  return bytes / unit * unit;
}

struct Choice {
  uint64_t bytes = 0;
  std::string why;
};

Choice ChooseG2(const SetupFacts& facts) {
  if (facts.arena_bytes > 0) {
    const auto bytes = static_cast<uint64_t>(kOfMount * static_cast<double>(facts.arena_bytes));
    return {std::max(Rounded(bytes), kSmallSegment), "what its mount holds"};
  }
  if (!facts.available_bytes.has_value()) {
    return {kLeastG2, "the machine's memory is not known"};
  }
  const uint64_t available = *facts.available_bytes;
  Choice choice{available / 4,
                absl::StrCat("a quarter of the ", FormatBytes(available),
                             " that are available: engines load their weights later")};
  if (facts.memory_limit_bytes != UINT64_MAX) {
    const uint64_t limit = facts.memory_limit_bytes;
    const auto most = static_cast<uint64_t>(
        static_cast<double>(limit - std::min(limit, kBesideG2)) / kWithStaging);
    if (most < choice.bytes) {
      choice = {most, absl::StrCat("what ", facts.memory_limit_path, ", ", FormatBytes(limit),
                                   ", leaves beside staging memory and the daemon itself")};
    }
  }
  if (choice.bytes < kLeastG2) {
    const uint64_t half = std::min(available, facts.memory_limit_bytes) / 2;
    choice = {std::min(kLeastG2, half), "the least that is of use; there is little memory"};
  }
  choice.bytes = std::max(Rounded(choice.bytes), kSmallSegment);
  return choice;
}

struct Path {
  std::string dir;
  uint64_t bytes = 0;
  std::string why;
};

// Own NVMe drives, if there are any; else a part of the file system that has the daemon's files.
std::vector<Path> ChooseG3(const SetupFacts& facts) {
  std::vector<Path> paths;
  for (const LocalFileSystem& each : facts.file_systems) {
    if (!each.own || !each.nvme) continue;
    const auto free = static_cast<double>(each.free_bytes);
    const bool empty = free >= kEmpty * static_cast<double>(each.total_bytes);
    const auto bytes = static_cast<uint64_t>(free * (empty ? 0.9 : 0.5));
    paths.push_back({absl::StrCat(each.mount_point, "/kvkeep"), Rounded(bytes),
                     empty ? "90 % of a drive of its own"
                           : "half of what is free, as others have files there"});
  }
  for (const LocalFileSystem& each : facts.file_systems) {
    if (!paths.empty() || each.own) continue;
    paths.push_back(
        {absl::StrCat(facts.cache_dir, "/g3"), Rounded(each.free_bytes / 2),
         absl::StrCat("half of what is free on ", each.mount_point, ", which others share")});
  }
  std::erase_if(paths, [](const Path& path) { return path.bytes < kLeastG3; });
  return paths;
}

// Returns the text as YAML's double-quoted scalar.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppend(&quoted, "\\x", absl::Hex(c, absl::kZeroPad2));
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

bool IsOfThePackage(const std::string& dir) {
  return absl::StartsWith(dir, "/var/lib/kvkeep/") || absl::StartsWith(dir, "/var/cache/kvkeep/");
}

}  // namespace

Setup ChooseSetup(const SetupFacts& facts) {
  Setup setup{.file = absl::StrCat(facts.config_dir, "/kvkeep.yaml")};
  const Choice g2 = ChooseG2(facts);
  const std::vector<Path> paths = ChooseG3(facts);
  setup.g2_bytes = g2.bytes;
  std::string& yaml = setup.yaml;
  yaml =
      "# kvkeepd's configuration, written by `kvkeep init` for this machine.\n"
      "#   every key:      kvkeepd --print-default-config\n"
      "#   after a change: kvkeepd --check-config FILE && kvkeep config reload\n"
      "#                   (it says which keys need a restart)\n";
  if (!facts.is_root) {
    // A user's sockets are where the embedded default has them, and where `kvkeep` looks.
    absl::StrAppend(&yaml, "\nlisten:\n  unix: ", Quoted(facts.state_dir + "/kvkeep.sock"),
                    "\n  local: ", Quoted(facts.state_dir + "/local.sock"),
                    "\n  admin: ", Quoted(facts.state_dir + "/admin.sock"), "\n");
  }
  absl::StrAppend(&yaml, "\ng2:\n  # ", g2.why, "\n  capacity: ", FormatSize(g2.bytes), "\n");
  if (g2.bytes < kGiB) {
    absl::StrAppend(&yaml, "  segment_bytes: ", FormatSize(kSmallSegment), "\n");
  }
  if (facts.arena_is_mounted) {
    absl::StrAppend(&yaml,
                    "  # its mounts are there: G2 outlives the daemon\n"
                    "  arena: mount\n"
                    "  arena_dir: /var/lib/kvkeep/arena/rw\n"
                    "  arena_readonly_dir: /var/lib/kvkeep/arena/ro\n");
  } else {
    setup.notes.push_back(
        "G2 is lost when the daemon stops; deploy/README.md says how a mount keeps it");
  }
  absl::StrAppend(&yaml, "\ng3:\n");
  if (paths.empty()) {
    absl::StrAppend(&yaml,
                    "  # no XFS or ext4 on a local drive, with space, that this user may write to\n"
                    "  paths: []\n");
    setup.notes.push_back(
        "no local XFS or ext4 with space was found: there is no G3, and chunks that leave memory "
        "are gone");
  } else {
    absl::StrAppend(&yaml, "  paths:\n");
    for (const Path& path : paths) {
      absl::StrAppend(&yaml, "    # ", path.why, "\n    - {dir: ", Quoted(path.dir),
                      ", capacity: ", FormatSize(path.bytes), "}\n");
      setup.g3_bytes += path.bytes;
      setup.directories.push_back(path.dir);
      if (facts.has_unit && !IsOfThePackage(path.dir)) {
        setup.notes.push_back(absl::StrCat("the unit may not write to ", path.dir,
                                           " yet: systemctl edit kvkeepd, and add [Service] "
                                           "ReadWritePaths=",
                                           path.dir));
      }
    }
    absl::StrAppend(&yaml,
                    "  # what nobody asks for again is not worth the drive's endurance, which is "
                    "not known here\n  admission: second_use\n");
  }
  const uint64_t notes = facts.available_bytes.value_or(4 * kGiB) / kPartOfNotes;
  if (const uint64_t chunks = notes / kBytesOfNotes; chunks < LimitsConfig{}.max_chunks) {
    absl::StrAppend(&yaml, "\nlimits:\n  # 800 bytes each: an eighth of the memory\n  max_chunks: ",
                    std::max<uint64_t>(chunks / 1000, 10), "k\n");
  }
  absl::StrAppend(&yaml, "\nstate:\n  dir: ", Quoted(facts.state_dir), "\n");
  setup.directories.push_back(facts.state_dir);
  return setup;
}

std::vector<std::string> EngineHints(const std::vector<FoundEngine>& engines) {
  std::vector<std::string> hints;
  for (const FoundEngine& engine : engines) {
    std::string flags;
    if (engine.name == "vllm") {
      flags =
          "--kv-transfer-config '{\"kv_role\": \"kv_both\", \"kv_connector\": "
          "\"KvkeepOffloadingConnector\", \"kv_connector_module_path\": \"kvkeep.vllm\", "
          "\"kv_connector_extra_config\": {\"spec_name\": \"TieringOffloadingSpec\", "
          "\"cpu_bytes_to_use\": 8589934592, \"secondary_tiers\": [{\"type\": \"KvkeepTier\", "
          "\"module_path\": \"kvkeep.vllm\"}]}}'";
    } else if (engine.name == "sglang") {
      flags =
          "--enable-hierarchical-cache --hicache-mem-layout page_first --hicache-storage-backend "
          "dynamic --hicache-storage-backend-extra-config '{\"backend_name\": \"kvkeep\", "
          "\"module_path\": \"kvkeep.sglang\", \"class_name\": \"KvkeepStorage\", "
          "\"interface_v1\": 1}'";
    } else {
      flags =
          "--l2-adapter '{\"type\": \"plugin\", \"module_path\": \"kvkeep.lmcache\", "
          "\"class_name\": \"KvkeepL2\", \"adapter_params\": {\"name\": \"WEIGHTS\"}}'";
    }
    hints.push_back(absl::StrCat(engine.name, " ", engine.version, ": ", flags));
  }
  return hints;
}

}  // namespace kvkeep::tools
