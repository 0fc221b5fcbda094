#include "tools/kvkeep/units.h"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <openssl/sha.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"

namespace kvkeep::tools {
namespace {

struct Unit {
  absl::string_view name;
  double factor;
};

// Splits "1.5GiB" into 1.5 and the factor of its unit. The first unit with an empty name is for
// bare numbers.
absl::StatusOr<double> ParseWithUnit(absl::string_view text, absl::Span<const Unit> units,
                                     absl::string_view example) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const absl::string_view unit = text.substr(digits);
  double value = 0;
  if (digits > 0 && absl::SimpleAtod(text.substr(0, digits), &value)) {
    for (const Unit& known : units) {
      if (unit == known.name) return value * known.factor;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "': write it like ", example));
}

}  // namespace

absl::StatusOr<uint64_t> ParseSize(absl::string_view text) {
  constexpr Unit kUnits[] = {{"", 1},       {"B", 1},      {"KiB", kKiB},
                             {"MiB", kMiB}, {"GiB", kGiB}, {"TiB", kTiB}};
  KVKEEP_ASSIGN_OR_RETURN(const double bytes, ParseWithUnit(text, kUnits, "256KiB or 2MiB"));
  if (bytes != std::floor(bytes) || bytes > 9e15) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "': not a whole number of bytes"));
  }
  return static_cast<uint64_t>(bytes);
}

absl::StatusOr<std::vector<uint64_t>> ParseChunkSizes(absl::string_view text) {
  std::vector<uint64_t> sizes;
  for (absl::string_view one : absl::StrSplit(text, ',')) {
    KVKEEP_ASSIGN_OR_RETURN(const uint64_t size, ParseSize(one));
    if (size < kMinPayloadBytes || size > kMaxPayloadBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", one, "': a chunk has 1 byte to ", kMaxPayloadBytes / kMiB, " MiB"));
    }
    sizes.push_back(size);
  }
  return sizes;
}

absl::StatusOr<std::chrono::milliseconds> ParseDuration(absl::string_view text) {
  constexpr Unit kUnits[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60'000},
                              {"h", 3'600'000}, {"d", 86'400'000}};
  KVKEEP_ASSIGN_OR_RETURN(const double ms, ParseWithUnit(text, kUnits, "500ms, 5s, 2m, 36h or 7d"));
  if (ms < 1 || ms > 366 * 86.4e6) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "': at least 1ms, at most 366d"));
  }
  return std::chrono::milliseconds(static_cast<int64_t>(ms));
}

std::string FormatBytes(uint64_t bytes) {
  constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kNames); ++unit) value /= 1024;
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f %s", value, kNames[unit]);
}

std::string BadDuration(const std::string& text) {
  return std::string(ParseDuration(text).status().message());
}

absl::StatusOr<std::chrono::milliseconds> ParseRemoteWait(absl::string_view text) {
  if (text == "0") return std::chrono::milliseconds(0);
  KVKEEP_ASSIGN_OR_RETURN(const std::chrono::milliseconds wait, ParseDuration(text));
  if (wait <= std::chrono::seconds(10)) return wait;
  return absl::InvalidArgumentError(absl::StrCat("'", text, "': at most 10s"));
}

std::string BadRemoteWait(const std::string& text) {
  return std::string(ParseRemoteWait(text).status().message());
}

std::string BadSize(const std::string& text) {
  return std::string(ParseSize(text).status().message());
}

std::string BadSizeAboveZero(const std::string& text) {
  const absl::StatusOr<uint64_t> size = ParseSize(text);
  return size.ok() && *size == 0 ? "at least a byte" : BadSize(text);
}

ChunkKey Sha256Key(absl::string_view text) {
  ChunkKey key;
  static_assert(SHA256_DIGEST_LENGTH == ChunkKey::kSize);
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), key.bytes.data());
  return key;
}

ChunkKey ParseKey(absl::string_view text) {
  if (text.size() == 2 * ChunkKey::kSize) {
    if (absl::StatusOr<ChunkKey> key = ChunkKey::FromHex(text); key.ok()) return *key;
  }
  return Sha256Key(text);
}

namespace {

// Returns the path where a user's daemon listens (config/embedded.h).
std::string UsersSocket(absl::string_view name) {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return absl::StrCat(state, "/kvkeep/", name);
  const char* const home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "" : home, "/.local/state/kvkeep/", name);
}

}  // namespace

std::string DefaultSocket(const char* variable, absl::string_view name,
                          absl::string_view system_dir) {
  const char* set = std::getenv(variable);
  if (set != nullptr && *set != '\0') return set;
  const std::string system = absl::StrCat(system_dir, "/", name);
  std::error_code error;
  const bool is_there = !system_dir.empty() && (std::filesystem::exists(system, error) ||
                                                error == std::errc::permission_denied);
  if (is_there) return absl::StrCat("unix://", system);
  return absl::StrCat("unix://", UsersSocket(name));
}

std::string DefaultAdminSocket() {
  std::error_code error;
  // The package makes the directory of its admin socket, which others cannot look into, even while
  // its daemon is off: that one is not meant where only a user's daemon listens.
  const bool only_users = !std::filesystem::exists("/run/kvkeep/kvkeep.sock", error) &&
                          std::filesystem::exists(UsersSocket("admin.sock"), error);
  return DefaultSocket("KVKEEP_ADMIN", "admin.sock", only_users ? "" : "/run/kvkeep-admin");
}

}  // namespace kvkeep::tools
