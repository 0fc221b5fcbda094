// MissingChunks: the chunks that a search has not found yet, for a source that asks another one for
// them. A plain value.
#pragma once

#include <vector>

#include "tiers/remote/remote_source.h"

namespace kvkeep {

struct MissingChunks {
  std::vector<ChunkId> ids;
  std::vector<size_t> at;  // where each stands among all that were asked for

  // REQUIRES: an entry in `found` for each id.
  static MissingChunks Of(const std::vector<ChunkId>& ids, const RemoteSource::Found& found) {
    MissingChunks missing;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (found[i].has_value()) continue;
      missing.ids.push_back(ids[i]);
      missing.at.push_back(i);
    }
    return missing;
  }
};

}  // namespace kvkeep
