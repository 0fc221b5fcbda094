// RemoteSource: images beyond the node, in object storage or at peers. The store's seam to them.
//
// A source has no extents, no index and no space of the store's, and other nodes put and delete
// there as they like. So none of its answers is a promise: bytes count once they are verified.
//
// Find, Age, Read, Write and Remove hand over a request and return at once. Each is answered once,
// later, on any thread, never inside the call, within a time that the source bounds. The caller
// keeps memory that a request names until the last answer. A deadline bounds that time further:
// soon after it the request is answered with what is known by then. Thread-safe.
//
// Images may expire there. How old one is comes with its first bytes, or is asked for (Age). A
// Write with `replace` makes it new again.
//
// Errors: NotFound (the image is not there), AlreadyExists (of a write: it is there, and stays as
// it is), Unavailable (the source does not answer, or is over a limit of its own), DataLoss (what
// came is not a whole image). Any other error says that the source is misconfigured.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/image.h"

namespace kvkeep {

class RemoteSource {
 public:
  // Contiguous memory of an image, from `offset` on, at most `bytes`.
  using Memory = std::function<std::span<std::byte>(uint64_t offset, uint64_t bytes)>;

  // One for each chunk asked for, in that order. None: not there, or the source cannot tell.
  using Found = std::vector<std::optional<ImageShape>>;

  struct ReadRequest {
    ChunkId id;
    ImageShape shape;   // as it was found
    HeaderPage header;  // gets the header page; all other bytes go to `memory`
    Memory memory;
    std::function<void(absl::Status)> header_done;
    // `bytes` of a piece have ended, well or not; in the end every byte of each piece has. The last
    // piece goes to the end of the image's last block. The source does not write to bytes that it
    // has reported. If the image is overwritten meanwhile, the read gives the old image or fails:
    // never a mix of two.
    std::function<void(size_t piece, uint64_t bytes, absl::Status)> piece_done;
    MonotonicTime deadline{MonotonicTime::max()};
    // Told before header_done, if the source knows how long the image has been there. May be null.
    std::function<void(std::chrono::seconds)> age = nullptr;

    // Reports all of a read of which nothing was reported.
    void Fail(const absl::Status& why) const {
      header_done(why);
      for (size_t piece = 0; piece < shape.pieces(); ++piece) {
        piece_done(piece, shape.piece_end(piece) - shape.piece_begin(piece), why);
      }
    }
  };

  struct WriteRequest {
    ChunkId id;
    ImageShape shape;
    ConstHeaderPage header;  // with a placement in this source
    Memory memory;           // all bytes behind the header page; the source only reads them
    std::function<void(absl::Status)> done;
    bool replace = false;  // whatever is there; else that may stay, and the write is spared
    uint64_t epoch = 0;    // epoch() when the caller chose the image, which becomes one of that
  };
  // The age of an image whose time the source does not tell.
  static constexpr std::chrono::seconds kAgeless = std::chrono::seconds::max();

  virtual ~RemoteSource() = default;

  // The answers that the caller can use. kLeadingRun: the chunks before the first absent one. kAny:
  // if the first chunk is absent, also chunks at the end of the run; layers with a sliding window
  // put only the last chunks of a prompt.
  enum class Wanted : uint8_t { kLeadingRun, kAny };

  // REQUIRES: all `ids` are of one namespace.
  virtual void Find(std::vector<ChunkId> ids, Wanted wanted, MonotonicTime deadline,
                    std::function<void(Found)> done) = 0;
  // Tells how long the image has been there. Cheap beside a write.
  virtual void Age(const ChunkId& id,
                   std::function<void(absl::StatusOr<std::chrono::seconds>)> done) = 0;
  virtual void Read(ReadRequest request) = 0;
  virtual void Write(WriteRequest request) = 0;
  // Returns a number that grows to make all present images absent: only images of the current epoch
  // are found.
  virtual uint64_t epoch() const { return 0; }
  // OK, too, if there was no such image. Unavailable, too, if an epoch began meanwhile.
  virtual void Remove(const ChunkId& id, std::function<void(absl::Status)> done) = 0;

  // Return whether a read or a write would be answered in good time, as far as the source knows.
  // Never waits.
  virtual bool readable() const = 0;
  virtual bool writable() const = 0;
  // Returns whether images are written and removed there at all: constant. If not, Write, Remove
  // and Age answer Unavailable.
  virtual bool keeps() const { return true; }
  // Returns whether Remove and Age would be answered in good time: as readable(), of the place
  // where images are kept.
  virtual bool removable() const { return readable(); }
  // Return whether Find for this namespace, and Age, may ask now by the source's own rates, of
  // which each tenant has a share. Age is for the background and leaves some to Find. A Find that
  // is called all the same learns little. Never waits.
  virtual bool may_find(const NamespaceDigest& ns) const = 0;
  virtual bool may_ask_age() const = 0;
  // Takes one of Age's questions for the removal of a chunk of this namespace that may not be
  // there. Returns false if there is none now.
  virtual bool TakeQuestion(const NamespaceDigest&) { return may_ask_age(); }
  // Tells that the image that was read last under this name, and is not kept by this source, was
  // damaged. Never waits.
  virtual void NoteBad(const ChunkId&) {}
  // The place that placements of its images name, and the key of their headers' MAC.
  virtual const Uuid& place() const = 0;
  virtual const MacKey& mac_key() const = 0;
};

}  // namespace kvkeep
