// The named pieces of the core's state: operations in flight.
// Plain structs; the core's lock protects all of them and the core's files say what moves them.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "tiers/crypt/image_cipher.h"
#include "tiers/store/chunk_table.h"
#include "tiers/store/durable_waiters.h"
#include "tiers/store/g2_pool.h"
#include "tiers/store/piece_waiters.h"
#include "tiers/store/read_queue.h"
#include "tiers/store/replaced.h"
#include "tiers/store/store.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

// One 4 KiB page for direct I/O: headers on their way to or from a device. Not ok: there was no
// memory for it, and nothing is to be read or written.
struct AlignedPage {
  AlignedPage() : bytes(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, kBlockBytes))) {}
  bool ok() const { return bytes != nullptr; }
  static absl::Status NoMemory() {
    return absl::UnavailableError("there is no memory for a page of 4096 bytes");
  }
  ~AlignedPage() { std::free(bytes); }
  AlignedPage(const AlignedPage&) = delete;
  AlignedPage& operator=(const AlignedPage&) = delete;
  HeaderPage span() { return HeaderPage(bytes, kBlockBytes); }
  std::byte* const bytes;
};

// A chunk on its way from G3 to G2; or, in place, one that is there and being verified. Lives until
// nothing of it is outstanding.
struct Promotion {
  explicit Promotion(size_t count) : pieces(count) { waiters.Resize(count); }
  bool IsReady(size_t piece) const { return pieces[piece].ready; }
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
  PieceWaiters waiters;
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

}  // namespace kvkeep::store_internal
