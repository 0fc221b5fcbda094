// Parses sizes, durations, keys and default sockets on the command line. Pure functions, except for
// DefaultSocket, which reads the environment and the file system.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tiers/base/key.h"

namespace kvkeep::tools {

// "1", "4096", "256KiB", "2MiB", "1.5GiB": powers of 1024 only, a whole number of bytes.
absl::StatusOr<uint64_t> ParseSize(absl::string_view text);
// Returns the mistake in a command line's text; empty if there is none.
std::string BadSize(const std::string& text);
std::string BadSizeAboveZero(const std::string& text);
// Parses one size of chunks or several with commas, each 1 byte to 256 MiB.
absl::StatusOr<std::vector<uint64_t>> ParseChunkSizes(absl::string_view text);
// "5s", "500ms", "2m", "36h", "7d", or a bare number of seconds; above zero, up to 366 days.
absl::StatusOr<std::chrono::milliseconds> ParseDuration(absl::string_view text);
std::string BadDuration(const std::string& text);  // as BadSize
// Parses how long the daemon may search beyond the node: as ParseDuration, or 0; at most 10 s, its
// limit.
absl::StatusOr<std::chrono::milliseconds> ParseRemoteWait(absl::string_view text);
std::string BadRemoteWait(const std::string& text);
std::string FormatBytes(uint64_t bytes);

// Returns the key of 64 hexadecimal digits; hashes any other text to a key by SHA-256.
ChunkKey ParseKey(absl::string_view text);
ChunkKey Sha256Key(absl::string_view text);

// Returns where the daemon listens: `variable` of the environment, else SYSTEM_DIR/NAME if it
// exists (or is not accessible, as another user's admin socket, so that the caller gets that
// error), else the embedded default's $XDG_STATE_HOME (or ~/.local/state)/kvkeep/NAME.
std::string DefaultSocket(const char* variable, absl::string_view name,
                          absl::string_view system_dir = "/run/kvkeep");
// $KVKEEP_ADMIN, /run/kvkeep-admin/admin.sock, or the embedded default's.
std::string DefaultAdminSocket();

}  // namespace kvkeep::tools
