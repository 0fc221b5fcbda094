// StoreDeps: the time, randomness, memory, devices and threads that a store uses. A simulator
// supplies its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/random.h"
#include "tiers/crypt/key_ring.h"
#include "tiers/host/arena.h"
#include "tiers/nvme/nvme_device.h"
#include "tiers/nvme/removal_log.h"
#include "tiers/remote/remote_source.h"

namespace kvkeep {

// All borrowed; must outlive the store. Executors must be idle or dropped before it is destroyed.
struct StoreDeps {
  struct DeviceDeps {
    NvmeDevice* device = nullptr;
    Executor* index_executor = nullptr;  // one thread: batches commit in order
    Executor* sync_executor = nullptr;   // may block for a second
    // True, without a device: it is being opened, and durable puts wait for it.
    bool coming = false;
  };
  Clock* clock = nullptr;
  RandomSource* random = nullptr;
  Arena* arena = nullptr;
  // Empty: G2 only. An entry without a device is a place for one that comes later (Store::Attach).
  std::vector<DeviceDeps> devices;
  // The source beyond the node; null: there is none. Its owner stops it before the store is
  // destroyed, so that every request is answered by then.
  RemoteSource* remote = nullptr;
  // Keeps the deleted chunks that are still to be removed there. Null: a process that ends forgets
  // them.
  RemovalLog* removal_log = nullptr;
  Executor* copy_executor = nullptr;  // verifies pieces, encrypts and decrypts
  // The same for work that nobody waits for: the sweep, the scrub, and what policies learn. Null:
  // copy_executor does it.
  Executor* background_executor = nullptr;
  Executor* background() const {
    return background_executor != nullptr ? background_executor : copy_executor;
  }
  MacKey mac_key{};
  // Keys by which images are encrypted on the devices. Null: images are written in plain, and
  // encrypted ones are misses. REQUIRES: a key for every tenant.
  const KeyRing* keys = nullptr;
  // The same for images that are written beyond the node and recalled from there: all nodes that
  // share it have these keys. REQUIRES: it is set if `remote` keeps images. An image that is
  // not encrypted there is a miss, unless it comes from a peer.
  const KeyRing* remote_keys = nullptr;
  Uuid boot_id;
  // Gets the number of records that the recovery has found so far; null: not counted.
  std::atomic<uint64_t>* recovered_records = nullptr;
  std::atomic<uint64_t>* recovered_images = nullptr;  // likewise, of images in G2
  int recovery_threads = 1;                           // threads that look at these
  // CPU time of the calling thread, for the longest hold of the lock; null: not measured.
  const Clock* work_clock = nullptr;
  uint32_t work_clock_every = 1;  // measures one hold in this many, as a reading is a system call
  // Runs without the lock when a store at rest (Tick) gets a call; null: not told.
  std::function<void()> wake;
  // For tests. `between_slices` runs where a call has let go of the lock between two slices of its
  // work. `hold_work`: how much work a slice is; 0: as tiers/store/work.h says.
  std::function<void()> between_slices;
  uint32_t hold_work = 0;
  // An image is large if it has more blocks than this many chunks have on average; 0: as
  // window_search.h says.
  uint32_t large_chunks = 0;
  uint64_t recency_chunks = 0;  // how many chunks with unsaved recency are remembered; 0: 65,536
};

}  // namespace kvkeep
