// Small blocking file calls with errors that name the path, for this folder's work at start:
// superblock, labels, state file. Payload goes through tiers/io.
//
// Error codes: NotFound, PermissionDenied (no right, or read-only), FailedPrecondition (a symbolic
// link, not a directory), ResourceExhausted (disk or quota full), DataLoss (anything else).
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

absl::Status ErrnoStatus(int error, absl::string_view path, absl::string_view what);

// openat with O_NOFOLLOW and O_CLOEXEC. `path` is only for the message.
absl::StatusOr<UniqueFd> OpenAt(int dir, const std::string& name, int flags, mode_t mode,
                                const std::string& path);

// Reads a whole file of at most `limit` bytes; a longer one is DataLoss.
absl::StatusOr<std::string> ReadWhole(int fd, size_t limit, const std::string& path);
// Reads exactly out.size() bytes from `offset`. DataLoss if the file ends before that.
absl::Status ReadAt(int fd, uint64_t offset, std::span<std::byte> out, const std::string& path);
absl::Status WriteAt(int fd, uint64_t offset, std::span<const std::byte> bytes,
                     const std::string& path);
absl::Status FlushFile(int fd, const std::string& path);

// Reserves the bytes [from, to) and makes the file that long. FailedPrecondition when the file
// system has no room: a capacity that was asked for and is not there.
absl::Status Preallocate(int fd, uint64_t from, uint64_t to, const std::string& path);

// flock(LOCK_EX | LOCK_NB). Unavailable when another holds it.
absl::Status TryLock(int fd, const std::string& path);

}  // namespace kvkeep
