// The name of a chunk's object: "1/" naming version, "sss/" one of 4,096 shards, 40 hexadecimal
// digits. Names are keyed, so that a reader of the bucket learns nothing of prompts or models from
// them, and a fleet with another key never has our names. A pure function.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <string>

#include "tiers/base/key.h"
#include "tiers/crypt/secret.h"

namespace kvkeep {

// Another epoch is another set of names, so all objects are absent at once.
struct ObjectEpoch {
  uint64_t configured = 0;  // g4.epoch
  uint64_t begun = 0;       // FleetEpoch's; 0: names as they were before FleetEpoch
};
std::string NameOfObject(const Secret& name_key, const ObjectEpoch& epoch, const ChunkId& id);

// ShardOfObjects returns what the names of one shard begin with, of any fleet and epoch.
inline constexpr uint32_t kObjectShards = 4096;
std::string ShardOfObjects(uint32_t shard);
// Returns whether `name` is a chunk's object of any fleet and epoch.
bool IsNameOfObject(absl::string_view name);

}  // namespace kvkeep
