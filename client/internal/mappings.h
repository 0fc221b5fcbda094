// A session's shared memory in this process: the arena's segments and the progress words, both
// read-only, and the socket whose end makes them void.
//
// Segments are kept over a reconnect when the daemon hands out the same files again. Memory stays
// mapped while anybody holds the Mappings; Alive() says whether it is still valid. Mappings are
// absent from children of fork() and from core dumps. Thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/internal/daemon_end.h"
#include "client/internal/fork_guard.h"
#include "proto/local/protocol.h"
#include "tiers/base/key.h"
#include "tiers/base/mutex.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::client {

// A use of mapped memory that does not keep it mapped, such as a registration with a driver.
class MappingUse {
 public:
  virtual ~MappingUse() = default;
  // Called when the memory is about to be unmapped. Returns when the use has ended.
  virtual void End() = 0;
};

// A shared mapping of a whole file. Unmapped when destroyed, after all its uses have ended.
class MappedFile {
 public:
  // INTERNAL: the file is not of `min_bytes` to `max_bytes`; else mmap's error.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Map(const UniqueFd& fd, bool writable,
                                                               uint64_t min_bytes,
                                                               uint64_t max_bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> memory() const { return memory_; }  // writable only when mapped so
  bool IsFile(const UniqueFd& fd) const;                   // the same file as `fd`
  bool whole() const { return whole_; }  // all pages were there when it was mapped
  // A use must be ended before it is destroyed.
  void AddUse(std::weak_ptr<MappingUse> use) const;

 private:
  MappedFile(std::span<std::byte> memory, uint64_t device, uint64_t inode, bool whole)
      : memory_(memory), device_(device), inode_(inode), whole_(whole) {}

  const std::span<std::byte> memory_;
  const uint64_t device_;
  const uint64_t inode_;
  const bool whole_;
  const ForkMark mark_;
  mutable Mutex mu_;
  mutable std::vector<std::weak_ptr<MappingUse>> uses_ ABSL_GUARDED_BY(mu_);
};

// The arena's segments of one tenant, and of tenants that let it read.
struct ArenaMap {
  Uuid uuid;
  uint32_t first_segment = 0;
  uint64_t segment_bytes = 0;
  std::vector<std::shared_ptr<const MappedFile>> segments;
  absl::flat_hash_map<uint32_t, std::shared_ptr<const MappedFile>> shared;  // by number

  // Returns the bytes of a segment by its number in the arena; empty: not one of ours.
  std::span<const std::byte> Segment(uint32_t number) const {
    if (number >= first_segment && number - first_segment < segments.size()) {
      return segments[number - first_segment]->memory();
    }
    const auto found = shared.find(number);
    return found == shared.end() ? std::span<const std::byte>() : found->second->memory();
  }
};

class Mappings {
 public:
  Mappings(GuardedFd socket, std::shared_ptr<const ArenaMap> arena,
           std::shared_ptr<const MappedFile> progress);

  const ArenaMap& arena() const { return *arena_; }
  const std::shared_ptr<const ArenaMap>& shared_arena() const { return arena_; }
  int socket() const { return end_->socket(); }
  const std::shared_ptr<const DaemonEnd>& end() const { return end_; }

  size_t progress_words() const { return words_.size(); }
  // REQUIRES: word < progress_words().
  local::ProgressWord Progress(uint32_t word) const;
  // Waits until Progress(word) is not `seen` any more, at most `timeout`; may wake up early.
  void WaitProgress(uint32_t word, local::ProgressWord seen,
                    std::chrono::nanoseconds timeout) const;

  // Returns whether everything read from the segments under a lease so far was good: the session
  // was neither revoked nor ended. Asks the kernel about the socket, as a daemon that died says
  // nothing.
  bool Alive() const;
  // Tells the daemon that we leave. REQUIRES: SetOver was called.
  void Leave() const;
  // A cheaper check, for leases: whether this process has noticed that the session is over.
  bool over() const { return over_.load(std::memory_order_acquire) || mark_.InChild(); }
  void SetOver() { over_.store(true, std::memory_order_release); }

 private:
  const std::shared_ptr<const DaemonEnd> end_;
  const std::shared_ptr<const ArenaMap> arena_;
  const std::shared_ptr<const MappedFile> progress_;
  const std::span<const local::ProgressWord> words_;
  std::atomic<bool> over_{false};
  const ForkMark mark_;
};

}  // namespace kvkeep::client
