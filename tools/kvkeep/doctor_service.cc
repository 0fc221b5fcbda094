#include "tools/kvkeep/doctor_service.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tiers/base/units.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

constexpr double kMarksShare = 0.002;          // of G2: what the arena keeps beside the chunks
constexpr uint64_t kTableBytesPerChunk = 300;  // tests/bench/store: 229 to 293
// Where a tier is under reuse or seconds: at most 480 of the tier that has the most chunks
// (reuse_policy.h).
constexpr uint64_t kLearnedBytesPerChunk = 500;
constexpr uint64_t kTimesCallMemory = 2;   // allocators keep some of what floods took
constexpr uint64_t kRestBytes = 1 * kGiB;  // code, RocksDB, buffers, connections

void ReadSetting(const std::filesystem::path& path, absl::string_view key,
                 std::optional<std::string>* value) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    absl::string_view said = absl::StripAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&said, key) || !absl::ConsumePrefix(&said, "=")) continue;
    *value = std::string(said);
  }
}

// Parses a size of systemd's: "84G" is 84 GiB. Returns nothing if it is no number of bytes (a
// share, "infinity").
std::optional<uint64_t> SystemdSize(absl::string_view text) {
  constexpr absl::string_view kUnits = "KMGT";
  uint64_t unit = 1;
  if (!text.empty() && kUnits.find(text.back()) != absl::string_view::npos) {
    unit = uint64_t{1} << (10 * (1 + kUnits.find(text.back())));
    text.remove_suffix(1);
  }
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || !(number > 0 && number < 1e15)) return std::nullopt;
  return static_cast<uint64_t>(number * static_cast<double>(unit));
}

}  // namespace

std::optional<std::string> ServiceSetting(const std::string& root, absl::string_view key) {
  const char* const folders[] = {"/etc/systemd/system", "/run/systemd/system",
                                 "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
                                 "/lib/systemd/system"};
  std::optional<std::string> value;
  std::error_code none;
  std::map<std::string, std::filesystem::path> drop_ins;
  bool found = false;
  for (const char* const folder : folders) {
    const std::filesystem::path unit = absl::StrCat(root, folder, "/kvkeepd.service");
    if (!found && std::filesystem::exists(unit, none)) {
      ReadSetting(unit, key, &value);
      found = true;
    }
    std::filesystem::directory_iterator entry(unit.string() + ".d", none);
    for (; entry != std::filesystem::directory_iterator(); entry.increment(none)) {
      const std::filesystem::path& path = entry->path();
      if (path.extension() == ".conf") drop_ins.emplace(path.filename().string(), path);
    }
  }
  for (const auto& [name, path] : drop_ins) ReadSetting(path, key, &value);
  return value;
}

uint64_t MemoryOfDaemon(const Config& config) {
  const auto g2 = static_cast<double>(config.g2.capacity_bytes);
  const bool learns = config.g2.policy != "lru" || config.g3.policy != "lru";
  const uint64_t chunk_bytes = kTableBytesPerChunk + (learns ? kLearnedBytesPerChunk : 0);
  return static_cast<uint64_t>(g2 * (1 + kMarksShare + config.limits.staging)) +
         config.limits.receive_memory_bytes + kTimesCallMemory * config.limits.call_memory_bytes +
         config.limits.local_memory_bytes + config.limits.max_chunks * chunk_bytes + kRestBytes;
}

Finding ExamineServiceMemory(const Config& config, const Machine& machine) {
  const uint64_t wanted = MemoryOfDaemon(config);
  Finding finding{.subject = "memory limit",
                  .found = absl::StrCat("the daemon may use up to ", FormatBytes(wanted))};
  const std::string said = ServiceSetting(machine.root, "MemoryMax").value_or("");
  const bool none = said.empty() || said == "infinity";
  if (none) {
    const std::string spared = ServiceSetting(machine.root, "OOMScoreAdjust").value_or("0");
    absl::StrAppend(&finding.found, "; kvkeepd.service has none");
    if (!absl::StartsWith(spared, "-")) return finding;
    finding.state = Finding::State::kWarn;
    finding.to_do =
        absl::StrCat("with OOMScoreAdjust=", spared,
                     " engines are killed first for what the daemon takes: MemoryMax=", wanted,
                     ", or no OOMScoreAdjust");
    return finding;
  }
  absl::StrAppend(&finding.found, "; kvkeepd.service has ", said);
  const std::optional<uint64_t> limit = SystemdSize(said);
  if (!limit.has_value() || *limit >= wanted) return finding;
  finding.state = Finding::State::kFail;
  finding.to_do = absl::StrCat("the kernel will kill the daemon: MemoryMax=", wanted,
                               " or more, or a smaller g2.capacity");
  return finding;
}

}  // namespace kvkeep::tools
