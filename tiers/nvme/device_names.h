// Names of a device's files below its directory (README.md describes the files).
#pragma once

#include <absl/strings/str_format.h>

#include <cstddef>
#include <string>

namespace kvkeep {

inline constexpr char kSuperblockName[] = "superblock";
inline constexpr char kNewSuperblockName[] = "superblock.new";
inline constexpr char kIndexName[] = "index";
inline constexpr char kLiveMapName[] = "live";
// Files of `kvkeep fsck --rebuild-index`: unfinished ones, and the index that was replaced. The
// daemon looks at none of them.
inline constexpr char kNewIndexName[] = "index.new";
inline constexpr char kLostIndexName[] = "index.lost";
inline constexpr char kNewLiveMapName[] = "live.new";

inline constexpr char kProbeName[] = "probe";  // probe.h's, for a moment

inline std::string DataFileName(size_t number) { return absl::StrFormat("data.%03u", number); }

}  // namespace kvkeep
