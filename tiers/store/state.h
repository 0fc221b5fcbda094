// The named pieces of the core's state: operations in flight.
// Plain structs; the core's lock protects all of them and the core's files say what moves them.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

#include <deque>
#include <memory>
#include <vector>

#include "tiers/crypt/image_cipher.h"
#include "tiers/store/aligned_page.h"
#include "tiers/store/chunk_table.h"
#include "tiers/store/durable_waiters.h"
#include "tiers/store/g2_pool.h"
#include "tiers/store/promotion.h"
#include "tiers/store/replaced.h"
#include "tiers/store/store.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

struct DeviceTier;

// A chunk on its way from G2 to G3. It ends when none of its bytes is left.
struct WriteBack {
  DeviceTier* to = nullptr;
  bool blames_device = true;  // a failure is the device's, not the arena's
  std::optional<ChunkKey> parent;
  const DataKey* key = nullptr;              // null: written as it is
  std::unique_ptr<AlignedPage> header_page;  // once there is a header to write
  Digest128 root;
  uint64_t created_unix_us = 0;
  uint64_t bytes = 0, bytes_left = 0;  // of the image; of that, those that have not ended
  absl::Status failure;
};

}  // namespace kvkeep::store_internal
