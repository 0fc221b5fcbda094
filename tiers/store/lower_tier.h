// LowerTier: a place below G2 that images are read from, piece by piece, and written to. It is what
// promotions and writes see: no device, no extent, no request of a protocol.
//
//   DeviceTier  one device of G3: space, records, syncs   device_tier.h
//   RemoteTier  what lies beyond the node: neither space nor records here   remote_tier.h
//
// Core asks Read, Write and NoteHeard of it without the lock, all else under the lock. Read and
// Write return at once. What they were given stays as it is until every byte was told of, each byte
// once, on any thread, never inside the call: a failed byte as well.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <functional>

#include "tiers/base/clock.h"
#include "tiers/base/image.h"
#include "tiers/store/arena_image.h"
#include "tiers/store/chunk_table.h"
#include "tiers/store/read_lane.h"

namespace kvkeep::store_internal {

class Promotion;

// Who is told of a read, with the promotion that it is of, which lives until all of it is told.
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
  ExtentList extents;  // where it lies, in a tier that has extents
  HeaderPage header;   // its header page goes there, its other bytes go to `to`
  ArenaImage to;
};

struct ImageWrite {
  ChunkId id;
  ImageShape shape;
  ExtentList extents;      // where it is to lie, in a tier that has extents
  ConstHeaderPage header;  // that of this tier; the other bytes are those of `from`
  ArenaImage from;
  std::function<void(uint64_t bytes, absl::Status status)> done;
};

class LowerTier {
 public:
  LowerTier(uint16_t number, const MacKey& mac_key) : number(number), mac_key(mac_key) {}
  virtual ~LowerTier() = default;

  virtual void Read(ImageRead read) = 0;
  virtual void Write(ImageWrite write) = 0;

  // What the header of the chunk's image has to say in this tier; DataLoss: another thing.
  virtual absl::Status CheckHeader(const ImageHeader& header, const Chunk& chunk) const = 0;
  // An image there was found damaged, or to be another one's.
  virtual void NoteBad(const ChunkId& id) = 0;
  // The store knows which chunks are there: their extents stay while they are read, and events tell
  // of them.
  virtual bool has_records() const = 0;
  virtual ImagePlacement PlacementOf(const Chunk& chunk) const = 0;
  virtual bool readable() const = 0;
  virtual bool writable() const = 0;
  // Something has ended, whatever became of it.
  virtual void NoteHeard() = 0;
  // What a whole image's read or write came to.
  virtual void NoteIo(bool write, const absl::Status& status, MonotonicTime now) = 0;
  // The image is read next: how many runs of the medium that begins.
  virtual uint32_t NoteRuns(const Chunk& chunk) = 0;

  const uint16_t number;  // of the store's tiers: devices first
  const MacKey mac_key;   // of its images' headers
  ReadLane reads;
  // What may go on now, as far as this hold may do; asked for again and again, once a hold.
  std::function<void()> pump;
  bool pumping = false;    // holds of its own are on their way
  bool pump_more = false;  // and have to go on
};

}  // namespace kvkeep::store_internal
