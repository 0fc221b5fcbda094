// LowerTier: a place below G2. Images are read from it, piece by piece, and written to it.
// Promotions, checks and writes beyond the node see this interface alone: no device, no extent, no
// request of a protocol. A write-back, which takes space and leaves a record, knows its DeviceTier.
//
//   DeviceTier  one device of G3: space, records, syncs   device_tier.h
//   RemoteTier  what lies beyond the node: neither space nor records here   remote_tier.h
//
// The store calls Read, Write and CheckHeader without the lock, NoteHeard with it or without, and
// the others under it. Read and Write return at once. Afterwards they report every byte once,
// failed bytes too, on any thread, never inside the call. Until then the caller keeps the memory
// that it gave them.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <functional>
#include <span>

#include "tiers/base/clock.h"
#include "tiers/base/image.h"
#include "tiers/store/arena_image.h"
#include "tiers/store/chunk_table.h"
#include "tiers/store/pump.h"
#include "tiers/store/read_lane.h"

namespace kvkeep::store_internal {

class Promotion;

// What the header of a chunk's image in a tier must say.
struct ExpectedHeader {
  ChunkId id;
  ImageShape shape;
  ImagePlacement placement;
};

// Gets the outcomes of a read. The promotion that the read is for lives until all bytes of the read
// are reported.
class ReadSink {
 public:
  virtual void OnHeaderRead(Promotion& promotion, HeaderPage page, absl::Status status) = 0;
  // `bytes` of the piece ended. The last piece goes to the end of the image's last block.
  virtual void OnPieceRead(Promotion& promotion, size_t piece, uint64_t bytes,
                           absl::Status status) = 0;

 protected:
  ~ReadSink() = default;
};

struct ImageRead {
  ReadSink* sink;
  Promotion* promotion;  // for the sink
  ChunkId id;
  ImageShape shape;
  ExtentList extents;  // where the image lies, in a tier that has extents
  HeaderPage header;   // gets the header page; all other bytes go to `to`
  ArenaImage to;
  MonotonicTime deadline;  // for a tier that can give up; max(): none
};

struct ImageWrite {
  ChunkId id;
  ImageShape shape;
  ExtentList extents;      // where the image is to lie, in a tier that has extents
  ConstHeaderPage header;  // for this tier; all other bytes come from `from`
  // Returns bytes from `offset`, as far as they are contiguous, at most `bytes`. The tier only
  // reads them.
  std::function<std::span<std::byte>(uint64_t offset, uint64_t bytes)> from;
  std::function<void(uint64_t bytes, absl::Status status)> done;
  bool replace = false;  // overwrite an image of its name, in a tier where there may be one
  uint64_t epoch = 0;    // RemoteSource's, in a tier that has one
};

// Returns whether a failed read says nothing about the bytes there, since the device is gone or the
// host is short of memory.
inline bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

class LowerTier {
 public:
  LowerTier(uint16_t number, const MacKey& mac_key, uint64_t most_reads_in_flight_bytes)
      : number(number), mac_key(mac_key), reads(most_reads_in_flight_bytes) {}
  virtual ~LowerTier() = default;

  virtual void Read(ImageRead read) = 0;
  virtual void Write(ImageWrite write) = 0;

  // Returns OK if the header is the expected one of an image in this tier. DataLoss: it is not.
  virtual absl::Status CheckHeader(const ImageHeader& header,
                                   const ExpectedHeader& expected) const = 0;
  ExpectedHeader Expect(const Chunk& chunk) const {
    return {chunk.id, chunk.shape, PlacementOf(chunk)};
  }
  // Notes that the image read for this chunk was damaged, or another chunk's. `header`: of the
  // image; null: that was bad.
  virtual void NoteBad(const ChunkId& id, const ImageHeader* header) = 0;
  // Returns whether the store keeps a record of each chunk there. If so, a chunk's extents stay
  // while it is read, and events tell of the chunk.
  virtual bool has_records() const = 0;
  virtual ImagePlacement PlacementOf(const Chunk& chunk) const = 0;
  virtual bool readable() const = 0;
  virtual bool writable() const = 0;
  // Notes that some I/O of this tier has ended, well or not.
  virtual void NoteHeard() = 0;
  // Notes how the read or write of a whole image ended.
  virtual void NoteIo(bool write, const absl::Status& status, MonotonicTime now) = 0;
  // Notes that the image is read next. Returns how many runs of the medium its read begins.
  virtual uint32_t NoteRuns(const Chunk& chunk) = 0;

  const uint16_t number;  // among the store's lower tiers: devices first
  const MacKey mac_key;   // of the headers of its images
  ReadLane reads;
  Pump pump;
};

}  // namespace kvkeep::store_internal
