// The named pieces of the core's state: sessions, leases, devices, operations in flight.
// Plain structs; the core's lock protects all of them and the core's files say what moves them.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "tiers/alloc/extent_allocator.h"
#include "tiers/crypt/image_cipher.h"
#include "tiers/index/doubtful.h"
#include "tiers/nvme/nvme_device.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/chunk_table.h"
#include "tiers/store/g2_pool.h"
#include "tiers/store/lease.h"
#include "tiers/store/rates.h"
#include "tiers/store/read_queue.h"
#include "tiers/store/read_speed.h"
#include "tiers/store/store.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

using StatusCallback = absl::AnyInvocable<void(absl::Status) &&>;

// One 4 KiB page for direct I/O: headers on their way to or from a device.
struct AlignedPage {
  AlignedPage() : bytes(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, kBlockBytes))) {}
  ~AlignedPage() { std::free(bytes); }
  AlignedPage(const AlignedPage&) = delete;
  AlignedPage& operator=(const AlignedPage&) = delete;
  HeaderPage span() { return HeaderPage(bytes, kBlockBytes); }
  std::byte* const bytes;
};

struct Session {
  std::shared_ptr<const SessionInfo> info;
  MonotonicTime opened{0};
  std::map<NamespaceDigest, NamespaceSpec> namespaces;
  // Trees: a hash map that grows moves all of its entries under the lock.
  absl::btree_map<uint64_t, Lease> leases;               // by LeaseId
  absl::btree_map<uint64_t, LeaseId> leases_by_request;  // by client_request_id
  uint64_t leased_bytes = 0;
  uint64_t reserved_blocks = 0;
  std::shared_ptr<Lessee> lessee;
  Rates::Part rates;
};

// Space taken for a put that is not sealed yet.
struct PendingPut {
  SessionToken session;
  TenantId tenant;
  Generation generation;
  ExtentList extents;
  uint64_t blocks = 0;
};

// A chunk on its way from G3 to G2; or, in place, one that is there and being verified. Lives until
// nothing of it is outstanding.
struct Promotion {
  struct Waiter {
    size_t first, end;  // pieces
    StatusCallback ready;
  };
  struct Piece {
    uint32_t reads_left = 0;
    bool verifying = false;
    bool ready = false;
  };
  bool in_place = false;
  uint16_t device = 0;
  ReadQueue::Asker asker;
  bool waits = false;  // in the device's read_queue
  AlignedPage header_page;
  std::unique_ptr<ImageHeader> header;  // once read and verified
  std::unique_ptr<ImageCipher> cipher;  // with the header of an encrypted image
  std::vector<Piece> pieces;
  size_t pieces_ready = 0;
  uint32_t outstanding = 0;   // reads, verifications, the header write
  uint64_t bytes = 0;         // counted against the device's reads in flight
  absl::Status failure;       // the first one
  bool failed_io = false;     // it was the device, not the bytes
  bool keyless = false;       // it was that the key is not there
  bool unauthentic = false;   // a tag did not match
  bool header_there = false;  // in the arena; who waits for the last piece waits for that too
  std::vector<Waiter> waiters;
};

// A chunk on its way from G2 to G3.
struct WriteBack {
  uint16_t device = 0;
  bool blames_device = true;  // a failure is the device's, not the arena's
  std::optional<ChunkKey> parent;
  const DataKey* key = nullptr;              // null: written as it is
  std::unique_ptr<AlignedPage> header_page;  // once there is a header to write
  Digest128 root;
  uint64_t created_unix_us = 0;
  uint32_t outstanding = 0;
  uint64_t bytes = 0;
  absl::Status failure;
};

// One path of G3.
struct DeviceTier {
  struct QueuedWrite {
    ChunkSlot slot;
    std::optional<ChunkKey> parent;
  };
  struct PendingAdd {
    ChunkSlot slot;
    IndexRecord record;
    std::optional<ChunkKey> parent;
  };
  struct PendingRemove {
    ChunkId id;
    ExtentList extents;
  };

  StoreDeps::DeviceDeps deps;
  std::unique_ptr<ExtentAllocator> allocator;
  std::vector<std::unique_ptr<EvictionPolicy>> policies;  // by tenant, nobody last
  uint64_t chunks = 0;                                    // stored
  // What of the allocator's may be used, and what of that is kept free for writes.
  uint64_t capacity_blocks = 0, reserve_blocks = 0;
  uint64_t capacity_bytes = 0;  // that as it was said: of the directory

  ReadQueue read_queue;                 // promotions that wait for their turn
  std::deque<ChunkSlot> confirm_queue;  // recovered after a power cut: header to be read first
  Uuid confirmed_boot;    // the boot for which every record is sure; goes into the stable mark
  uint32_t confirms = 0;  // such reads under way
  Doubtful doubtful;
  bool doubtful_saved = true;  // in the index; it has to be before the stable mark moves
  uint64_t reading_bytes = 0;
  uint64_t read_up_to = UINT64_MAX;  // the block behind the last promotion's image
  ReadSpeed read_speed;              // of promotions
  // Dirty chunks that wait for their turn, in the order of their generations.
  absl::btree_map<Generation, QueuedWrite> write_queue;
  uint64_t writing_bytes = 0, given_blocks = 0;  // under way; of all chunks ever queued here

  std::deque<PendingAdd> adds;        // for the next batches
  std::deque<PendingRemove> removes;  // for the next batches
  uint64_t freeing_blocks = 0;        // of removes, also those in the batch under way
  bool committing = false;
  MonotonicTime commit_retry_at{0};            // after a refused batch
  CommitSequence assigned, committed, stable;  // the last given out / in the index / synced

  bool syncing = false, dirty_index = false;  // the latter: committed to since the last sync began
  MonotonicTime last_sync{0}, last_recency{0};
  std::multimap<CommitSequence, StatusCallback> sync_waiters;  // by what has to be stable

  bool pumping = false;    // KeepPumping is under way, or in an outbox
  bool pump_more = false;  // and has to go on

  DeviceState state = DeviceState::kOk;
  std::string message;
  uint32_t read_errors = 0, write_errors = 0;  // in a row
  MonotonicTime retry_at{0};
  bool failed_sync = false;  // never trusted again before a restart

  // I/O that no end comes of: `heard` is set when any ends, Tick does the rest.
  bool heard = false;
  std::chrono::nanoseconds silent_for{0};  // while there was something to hear of
  bool stuck = false;                      // left alone, as if it was offline, until something ends
  bool told_readable = true;               // as readers of events know it
  uint64_t used_blocks() const {
    return allocator->capacity().value() - allocator->free_blocks().value();
  }
  // Free once the removals under way are committed.
  uint64_t free_blocks() const {
    const uint64_t staying = used_blocks() - freeing_blocks;
    return capacity_blocks - std::min(capacity_blocks, staying);
  }
  bool over_capacity() const { return used_blocks() - freeing_blocks > capacity_blocks; }
  EvictionPolicy& policy(TenantId tenant) const { return *policies[tenant.value()]; }
  bool CanGive(TenantId tenant) const { return policy(tenant).Victim().has_value(); }
  bool busy() const { return reading_bytes > 0 || writing_bytes > 0 || confirms > 0; }
  bool readable() const { return state != DeviceState::kOffline && !stuck; }
  bool writable() const {
    return (state == DeviceState::kOk || state == DeviceState::kDegraded) && !failed_sync && !stuck;
  }
};

}  // namespace kvkeep::store_internal
