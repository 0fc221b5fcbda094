// The names of an arena's files on its mount (mount_files.h describes the files), and the text of
// arena.id, for code that makes, reuses, looks at or drops them.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tiers/host/segment_files.h"

namespace kvkeep {

inline constexpr char kArenaLockName[] = "arena.lock";
inline constexpr char kArenaIdName[] = "arena.id";
inline constexpr char kArenaMarksName[] = "arena.marks";
inline constexpr char kArenaPartName[] = "arena.part";
inline constexpr char kNewArenaPartName[] = "arena.part.new";  // until it is renamed to that

// Format of arena.id, and of the files that it says are whole.
inline constexpr char kArenaIdFormat[] = "v2";

// The contents of arena.id.
struct ArenaId {
  Uuid uuid;
  ArenaGeometry geometry;
  uint64_t owners = 0;

  std::string ToString() const;
  // Returns nullopt if the text is damaged or of another version.
  static std::optional<ArenaId> Parse(absl::string_view text);
  bool operator==(const ArenaId&) const = default;
};

// The contents of arena.part: how much of the arena of this UUID has memory (piece_order.h).
// Without it, or if it is another arena's, all of the arena has memory.
struct ArenaPart {
  Uuid uuid;
  uint64_t piece_bytes = 0;
  uint64_t pieces = 0;

  std::string ToString() const;
  static std::optional<ArenaPart> Parse(absl::string_view text);
  bool operator==(const ArenaPart&) const = default;
};

// Number of the marks' file in notes of memory errors (tiers/base/memory_errors.h). A segment's
// file has the segment's number.
inline constexpr uint64_t kMarksFileNumber = UINT32_MAX;

std::string SegmentName(size_t segment);  // "segment.000"
bool IsSegmentName(absl::string_view name);
// Returns whether a file of this name is part of an arena. arena.lock is not: it stays.
bool IsArenaFile(absl::string_view name);

// Returns the target of a symbolic link of ours in the open directory; empty: there is none.
std::string ReadOwnLink(int directory, const char* name);

// Returns the bytes that all files in the directory itself take, whoever owns them.
uint64_t BytesOfFilesIn(int directory);

// Returns the arena's files in the open directory, the identity first. Remove them in this order,
// so that a crash on the way leaves nothing that looks whole. An error is the system's.
absl::StatusOr<std::vector<std::string>> ListArenaFiles(int directory);

}  // namespace kvkeep
