// The names of an arena's files on its mount (mount_files.h says what is in them), for whoever
// makes, reuses, looks at or drops them.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <cstddef>
#include <string>
#include <vector>

namespace kvkeep {

inline constexpr char kArenaLockName[] = "arena.lock";
inline constexpr char kArenaIdName[] = "arena.id";
inline constexpr char kArenaMarksName[] = "arena.marks";

std::string SegmentName(size_t segment);  // "segment.000"
bool IsSegmentName(absl::string_view name);
// Whether a file of this name is part of an arena; arena.lock is not, it stays.
bool IsArenaFile(absl::string_view name);

// Those in the open directory, the identity first: to be removed in this order, so that a crash on
// the way leaves nothing that looks whole. The status is of the system's error.
absl::StatusOr<std::vector<std::string>> ListArenaFiles(int directory);

}  // namespace kvkeep
