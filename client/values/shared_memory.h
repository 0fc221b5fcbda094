// Additions of the local path: chunks read in place, and memory that the daemon takes puts from
// without a copy by the client.
//
// All of it works only while the client is on the local path (Client::path); elsewhere the calls
// answer FAILED_PRECONDITION. Objects here may outlive the client and its session; the memory they
// show stays mapped until they are gone. A page with an uncorrectable memory error raises SIGBUS in
// the thread that reads it, as in any memory; nothing here handles that.
#pragma once

#include <absl/container/inlined_vector.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/values/lease.h"
#include "client/values/types.h"

namespace kvkeep::client {

class Mappings;
class StagingArea;
struct Layout;
struct LocalRegion;

struct AcquireOptions {
  Parts parts;
  bool all_present = false;  // lease every chunk that is there, not only the leading run
  bool transient = false;
  Deadline deadline{0};
};

// One chunk in the daemon's memory. Read-only: a write is a SIGSEGV.
struct ChunkView {
  uint32_t chunk = 0;  // key index * parts + part index, within the acquire
  uint64_t payload_bytes = 0;
  // The payload in order, nearly always one run. Readable as far as Acquired::pieces_ready says.
  absl::InlinedVector<std::span<const std::byte>, 1> runs;
  absl::InlinedVector<std::span<const std::byte>, 1> metadata;  // readable with the last piece

  // The whole payload when it lies in one run, else empty.
  std::span<const std::byte> contiguous() const {
    return runs.size() == 1 ? runs[0] : std::span<const std::byte>();
  }
};

// Leased chunks that can be read in place. Move-only; gives the lease back when destroyed. The
// const methods are thread-safe.
class [[nodiscard]] Acquired {
 public:
  Acquired() = default;
  Acquired(Acquired&&) noexcept = default;
  Acquired& operator=(Acquired&&) noexcept = default;

  uint32_t leading_keys = 0;  // as LookupResult
  uint32_t leased_keys = 0;
  std::vector<ChunkView> chunks;  // the leased ones, in the order keys x parts
  Lease lease;

  // Returns how many pieces of chunks[view], from the first, can be read now: all of them for a
  // chunk that was in G2. Reads a word in shared memory; makes no call to the daemon.
  size_t pieces_ready(size_t view) const;
  // Waits until that many pieces can be read. DATA_LOSS: the chunk is damaged or its device failed:
  // a miss. DEADLINE_EXCEEDED: not within `timeout`. FAILED_PRECONDITION: the lease is revoked.
  absl::Status WaitPieces(size_t view, size_t pieces, Deadline timeout) const;
  absl::Status WaitAll(Deadline timeout) const;
  // Returns whether the bytes read so far are good. False once the daemon revoked the lease (this
  // process was stopped for longer than the grace period) or is gone: call it after reading, before
  // use.
  bool valid() const;
  // Returns whether the bytes of chunks[view] match the checksums in its header. For tools and
  // tests, as the daemon has verified them. REQUIRES: all pieces are ready.
  bool Verify(size_t view) const;

  // For the transport.
  Acquired(std::shared_ptr<const Mappings> mappings, std::shared_ptr<const Layout> layout);

 private:
  absl::StatusOr<size_t> Ready(size_t view) const;  // DATA_LOSS: lost

  std::shared_ptr<const Mappings> mappings_;  // null: default constructed, or moved from
  std::shared_ptr<const Layout> layout_;      // of `chunks`
};

// Memory shared with the daemon, to be filled and then named in PutChunk::runs. Move-only; gives
// the memory back when destroyed. A put must have ended before.
class [[nodiscard]] StagingBuffer {
 public:
  StagingBuffer() = default;
  ~StagingBuffer();
  StagingBuffer(StagingBuffer&& other) noexcept;
  StagingBuffer& operator=(StagingBuffer&& other) noexcept;

  std::span<std::byte> memory() const { return memory_; }
  // Returns true if a put ended by its deadline, or because the connection broke, and the daemon
  // may still read from the session's staging memory. Do not change bytes that such a put named, or
  // the daemon could store a mix of the old and the new ones. A daemon that takes absolute
  // deadlines (protocol 8, and the same clock as here) stores nothing that it reads after the put's
  // deadline, so this is false from then on. Destroying the buffer is always safe.
  bool in_use() const;

  // For the transport.
  StagingBuffer(std::shared_ptr<StagingArea> area, std::span<std::byte> memory);

 private:
  std::shared_ptr<StagingArea> area_;
  std::span<std::byte> memory_;
};

struct RegisterOptions {
  // The caller writes the memory again once its put has ended and in_use() is false, or at the
  // put's deadline. A daemon that may store what it reads later (see StagingBuffer::in_use) gets
  // copies, as if the memory were not registered.
  bool reused = false;
};

// A memfd of the caller's that the daemon knows: the daemon reads runs inside `mapping` from the
// file itself. Move-only; ends the registration when destroyed.
class [[nodiscard]] RegisteredMemory {
 public:
  RegisteredMemory() = default;
  ~RegisteredMemory();
  RegisteredMemory(RegisteredMemory&& other) noexcept;
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;

  std::span<const std::byte> mapping() const { return mapping_; }
  bool in_use() const;  // as StagingBuffer::in_use

  // For the transport.
  explicit RegisteredMemory(std::shared_ptr<LocalRegion> region);

 private:
  void Unregister();

  std::shared_ptr<LocalRegion> region_;
  std::span<const std::byte> mapping_;
};

}  // namespace kvkeep::client
