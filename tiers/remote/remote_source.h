// RemoteSource: images beyond the node, in object storage or at peers. The seam of the store to
// them: it has no extents, no index and no space of ours, and others put and delete there as they
// like. So nothing that it says is a promise: bytes are believed once they were checked.
//
// Find, Read, Write and Remove hand over a request and return at once. Each is answered once,
// later, on any thread, never inside the call, within a time that the source bounds. Memory that a
// request names stays until its last answer. Thread-safe.
//
// Errors: NotFound (it is not there), Unavailable (the source does not answer, or is over a limit
// of its own), DataLoss (what came is no whole image). Others are the source's misconfiguration.
#pragma once

#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tiers/base/image.h"

namespace kvkeep {

class RemoteSource {
 public:
  // Of an image, from `offset`: contiguous memory of at most `bytes`.
  using Memory = std::function<std::span<std::byte>(uint64_t offset, uint64_t bytes)>;

  // By chunk asked for, in that order; none: it is not there, or the source cannot tell.
  using Found = std::vector<std::optional<ImageShape>>;

  struct ReadRequest {
    ChunkId id;
    ImageShape shape;   // as it was found
    HeaderPage header;  // for the header page; all else goes to `memory`
    Memory memory;
    std::function<void(absl::Status)> header_done;
    // `bytes` of a piece ended, well or not; of each piece all bytes in the end. The last piece
    // goes to the end of the image's last block. What was told of is not written to any more. An
    // image that is overwritten meanwhile is read as it was, or fails: never a mix of two.
    std::function<void(size_t piece, uint64_t bytes, absl::Status)> piece_done;
  };

  struct WriteRequest {
    ChunkId id;
    ImageShape shape;
    ConstHeaderPage header;  // with a placement of this source's
    Memory memory;           // of all behind the header page; only read
    std::function<void(absl::Status)> done;
  };

  virtual ~RemoteSource() = default;

  virtual void Find(std::vector<ChunkId> ids, std::function<void(Found)> done) = 0;
  virtual void Read(ReadRequest request) = 0;
  virtual void Write(WriteRequest request) = 0;
  // OK as well where there was none.
  virtual void Remove(const ChunkId& id, std::function<void(absl::Status)> done) = 0;

  // Who asks now is answered in good time, as far as the source knows. Never waits.
  virtual bool readable() const = 0;
  virtual bool writable() const = 0;
  // What images there have as their placement's place, and the key of their headers' MAC.
  virtual const Uuid& place() const = 0;
  virtual const MacKey& mac_key() const = 0;
};

}  // namespace kvkeep
