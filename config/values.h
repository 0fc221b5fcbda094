// The values of a config file as text: sizes, counts, shares, times, addresses, paths.
//
// Parse... returns InvalidArgument whose message starts with the quoted text and says what is
// valid. Format... returns text that Parse... reads back as the same value.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace kvkeep {

// Returns `text` in quotes, cut and escaped so that a message stays one readable line.
std::string QuoteForMessage(absl::string_view text);

// 4096, 512MiB, 64GiB, 1TiB; KB, MB, GB, TB are decimal.
absl::StatusOr<uint64_t> ParseSize(absl::string_view text);
std::string FormatSize(uint64_t bytes);

// 65536, 64k, 4M (decimal), 64Ki, 4Mi.
absl::StatusOr<uint64_t> ParseCount(absl::string_view text);
std::string FormatCount(uint64_t count);

// 25%, 12.5% -> 0.25, 0.125.
absl::StatusOr<double> ParseFraction(absl::string_view text);
std::string FormatFraction(double fraction);

// 250ms, 15s, 1m, 2h.
absl::StatusOr<std::chrono::milliseconds> ParseDuration(absl::string_view text);
std::string FormatDuration(std::chrono::milliseconds duration);

// 0660, 660: octal, as for chmod.
absl::StatusOr<uint32_t> ParseMode(absl::string_view text);
std::string FormatMode(uint32_t mode);

// [1000, 1001]: at most kMaxNumbers numbers of 32 bits, none twice.
absl::StatusOr<std::vector<uint32_t>> ParseNumbers(absl::string_view text);
std::string FormatNumbers(const std::vector<uint32_t>& numbers);

absl::StatusOr<bool> ParseBool(absl::string_view text);

// host:port, [v6]:port. The host is not resolved.
absl::Status CheckAddress(absl::string_view text);
// Absolute, without control characters; at most kMaxPathBytes.
absl::Status CheckPath(absl::string_view text);
// Checks a path as CheckPath, and that it fits the kernel's sockaddr_un.
absl::Status CheckSocketPath(absl::string_view text);

// A tenant's name: 1 to 32 of a-z, 0-9 and '-', as it becomes part of metrics and log lines.
absl::Status CheckTenantName(absl::string_view text);
// tcp:// and an address, or ipc:// and a socket's path.
absl::Status CheckZmqEndpoint(absl::string_view text);
// http:// or https://, an address and a bucket; or file:// and an absolute path.
absl::Status CheckG4Url(absl::string_view text);
// The parts of a G4 URL: a directory, or an endpoint ("https://host") and a bucket there.
struct G4Place {
  std::string directory;  // empty: it is a bucket
  std::string endpoint, bucket;
};
// REQUIRES: CheckG4Url(url) is OK.
G4Place SplitG4Url(absl::string_view url);
// Checks that the prefix can begin the names of objects, and makes no file name with another
// meaning.
absl::Status CheckG4Prefix(absl::string_view text);
// A forward proxy: http://host:port. A user is refused: the config is shown.
absl::Status CheckProxy(absl::string_view text);

// A program's absolute path and its arguments, as SplitKeyCommand (tiers/objects) reads them.
absl::Status CheckCommand(absl::string_view text);
// A region, a fleet: 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'.
absl::Status CheckPlainName(absl::string_view text);
// Another node of the fleet: NAME=HOST:PORT.
absl::Status CheckPeer(absl::string_view text);
inline constexpr size_t kMaxPeers = 1024;
absl::StatusOr<std::vector<std::string>> ParsePeers(absl::string_view text);
// A group's name or number; does not check that the group exists.
absl::Status CheckGroupName(absl::string_view text);

// [engine.example, spiffe://x/y read]: at most kMaxNames DNS or URI names, none twice; with
// `grants` each may be followed by read or write.
absl::StatusOr<std::vector<std::string>> ParseNames(absl::string_view text, bool grants);
// Paths without commas, which separate them.
absl::StatusOr<std::vector<std::string>> ParsePaths(absl::string_view text, size_t most);
// [GPU-8-4-4-4-12 hex digits, MIG-...], [all] or [].
absl::StatusOr<std::vector<std::string>> ParseGpus(absl::string_view text);
std::string FormatNames(const std::vector<std::string>& names);

// Returns whether an address that CheckAddress takes is this host's own: localhost, 127.0.0.0/8,
// [::1].
bool IsLoopbackAddress(absl::string_view address);

inline constexpr size_t kMaxNumbers = 64;
inline constexpr size_t kMaxNames = 64;
inline constexpr size_t kMaxGpus = 64;
inline constexpr size_t kMaxPreviousMasterKeys = 8;
inline constexpr size_t kMaxNameBytes = 255;
inline constexpr size_t kMaxPathBytes = 1024;
inline constexpr size_t kMaxSocketPathBytes = 107;

}  // namespace kvkeep
