// MetadataReads: reads the metadata tails of chunks, for the daemon, which tells routers of chunks.
//
// In G3 it reads the header page and the tail's blocks without a hold on them. Another chunk may be
// written there meanwhile. The header's MAC or the tail's checksum in the header tells that.
//
// Owns nothing. Takes the store's lock.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>

#include <string>

#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/reads.h"

namespace kvkeep::store_internal {

class MetadataReads {
 public:
  using Callback = absl::AnyInvocable<void(absl::StatusOr<std::string>) &&>;

  // All pointers are borrowed.
  MetadataReads(const MacKey& mac_key, Chunks* chunks, DeviceTiers* tiers, Reads* reads);

  // As Store::ReadMetadata.
  void ReadMetadata(const ChunkId& id, Callback done);

 private:
  // REQUIRES: the chunk is in G3.
  void ReadTail(const Chunk& chunk, Callback done) STORE_LOCKED;

  const MacKey mac_key_;
  Chunks& chunks_;
  DeviceTiers& tiers_;
  Reads& reads_;
};

}  // namespace kvkeep::store_internal
