// The model's knowledge of names: their spaces, their possible contents, and promises made of them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tiers/base/image.h"
#include "tiers/base/key.h"
#include "tiers/index/record.h"
#include "tiers/store/types.h"

namespace kvkeep {

inline constexpr uint64_t kNames = 64;  // of a space
inline constexpr TenantId kAway{UINT32_MAX};

struct Space {
  TenantId tenant;  // kAway: not in this process
  NamespaceDigest ns;
  PartId part;
};
struct Version {
  uint64_t number;
  ImageShape shape;
};
// The possible contents of a name.
struct Name {
  std::vector<Version> versions;
  uint64_t deleted_up_to = 0;  // versions up to this one must not be read by new readers
  uint64_t changes = 0;        // puts that were stored, and deletes
};
// The record of chunks that were acknowledged as durable.
struct Promise {
  size_t device = 0;
  CommitSequence sequence;
  bool operator==(const Promise&) const = default;
};
using Records = std::map<uint64_t, Promise>;  // of a device, by name

}  // namespace kvkeep
