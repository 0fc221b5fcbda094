// CipherBuffers: memory that writes to lower tiers encrypt into. It is counted. Buffers of a whole
// unit are kept for the next write, since new pages from the kernel cost more than the encryption.
//
// At most kMaxKept buffers are kept, 66 MiB: as many as may be on their way beyond the node
// (remote_writes.h). Writes to devices use fewer at a time (encrypted_write.h). Thread-safe. A
// Buffer keeps the pool alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/base/units.h"
#include "tiers/store/account.h"

namespace kvkeep::store_internal {

class CipherBuffers : public std::enable_shared_from_this<CipherBuffers> {
 public:
  static constexpr size_t kMaxKept = 64;
  // Holds a unit of one piece, with the longest metadata tail behind it.
  static constexpr size_t kUnitBytes = kPieceBytes + 32 * kKiB;

  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&&) = default;
    ~Buffer();
    std::byte* data() const { return memory_.get(); }

   private:
    friend class CipherBuffers;
    struct Free {
      void operator()(std::byte* bytes) const { std::free(bytes); }
    };
    using Memory = std::unique_ptr<std::byte[], Free>;

    std::shared_ptr<CipherBuffers> pool_;
    Memory memory_;
    size_t bytes_ = 0;
  };

  // For direct I/O: aligned to blocks. Its data is null when there is no memory. REQUIRES: whole
  // blocks.
  Buffer Take(size_t bytes);
  uint64_t bytes_out() const;

 private:
  // For less than this a whole buffer would be a waste.
  static bool Keeps(size_t bytes) { return bytes > kUnitBytes / 2 && bytes <= kUnitBytes; }
  void Give(Buffer& buffer);

  mutable Mutex mu_;
  std::vector<Buffer::Memory> kept_ ABSL_GUARDED_BY(mu_);  // of kUnitBytes each
  Account bytes_out_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::store_internal
