// What the machine can do without kvkeep, measured in the same minutes as kvkeep: copies of cold
// memory, and messages thrown back and forth over a socket between two processes. Every figure of
// the table is a ratio to one of these. One thread uses an object.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tiers/base/unique_fd.h"
#include "tools/bench/measured.h"
#include "tools/bench/message_sizes.h"
#include "tools/bench/shared_pages.h"

namespace kvkeep::bench {

// memcpy from one region to another, both of the arena's page kind and larger than the last-level
// cache, taken in turn: every copy reads and writes memory that is in no cache.
class ColdCopy {
 public:
  struct Options {
    uint64_t source_bytes = 0;  // 0: ColdBytes()
    uint64_t target_bytes = 0;
    std::string mount_dir;  // of the arena; empty: memfd
  };
  static absl::StatusOr<std::unique_ptr<ColdCopy>> Create(const Options& options);

  // One copy is of `size` bytes by one thread; several threads copy different ones.
  // REQUIRES: size not more than the regions.
  Measured Run(uint64_t size, int threads, double seconds);
  uint64_t huge_page_bytes() const;

 private:
  ColdCopy(SharedPages source, SharedPages target)
      : source_(std::move(source)), target_(std::move(target)) {}
  Measured CopyOnOneThread(uint64_t size, int thread, int threads, double seconds);

  const SharedPages source_;
  const SharedPages target_;
  uint64_t round_ = 0;  // where the next run goes on
};

// Of the caches of this machine; 32 MiB when it does not say.
uint64_t LastLevelCacheBytes();
// Memory that is cold when it was gone through: four times that, at least 256 MiB.
uint64_t ColdBytes();

// A process of our own on the other end of a SEQPACKET socket that answers each request, whatever
// it holds, with a reply; both block in the kernel. Longer messages go in packets as the local
// protocol cuts them. The process ends with the object.
class PingPong {
 public:
  static absl::StatusOr<std::unique_ptr<PingPong>> Start(MessageSizes sizes);
  ~PingPong();
  PingPong(const PingPong&) = delete;

  // With `depth` requests under way. Unavailable: the other process is gone.
  absl::StatusOr<Measured> Run(int depth, double seconds);
  const MessageSizes& sizes() const { return sizes_; }

 private:
  PingPong(MessageSizes sizes, UniqueFd socket, int pid)
      : sizes_(sizes), socket_(std::move(socket)), pid_(pid) {}

  const MessageSizes sizes_;
  UniqueFd socket_;
  const int pid_;
};

}  // namespace kvkeep::bench
