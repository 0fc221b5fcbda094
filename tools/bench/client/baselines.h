// Speed of the machine without kvkeep, measured in the same minutes as kvkeep: copies of cold
// memory, and messages sent back and forth over a socket between two processes. Every figure of the
// table is a ratio to one of these. One thread uses an object.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tiers/base/unique_fd.h"
#include "tools/bench/client/commands.h"
#include "tools/bench/client/measured.h"
#include "tools/bench/client/shared_pages.h"

namespace kvkeep::bench {

// memcpy from one region to another, both of the arena's page kind and larger than the last-level
// cache, taken in turn: every copy reads and writes memory that is in no cache.
class ColdCopy {
 public:
  // Regions of `bytes` bytes each. `mount_dir`: of the arena; empty: memfd.
  static absl::StatusOr<std::unique_ptr<ColdCopy>> Create(uint64_t bytes,
                                                          const std::string& mount_dir);

  // Each thread copies `size` bytes at a time; threads copy different bytes. REQUIRES: size is at
  // most the regions' size.
  Measured Run(uint64_t size, int threads, double seconds);
  uint64_t huge_page_bytes() const;

 private:
  ColdCopy(SharedPages source, SharedPages target)
      : source_(std::move(source)), target_(std::move(target)) {}
  Measured CopyOnOneThread(uint64_t size, int thread, int threads, double seconds);

  const SharedPages source_;
  const SharedPages target_;
  uint64_t round_ = 0;  // at which the next run continues
};

// Returns the bytes of this machine's last-level caches; 32 MiB if it does not report them.
uint64_t LastLevelCacheBytes();
// Returns a size of memory that is cold after one pass over it: four times the caches, at least //
// 256 MiB.
uint64_t ColdBytes();

// The bytes that a call of the local protocol sends and receives, from the structs of
// proto/local/protocol.h. A bare ping-pong carries as many, to be compared with the call.
struct MessageSizes {
  size_t request_bytes = 0;
  size_t reply_bytes = 0;
};
// Returns the sizes of a get of `keys` present chunks, of one part and one run each, which also
// releases the lease of an earlier get.
MessageSizes GetMessages(size_t keys);
// Returns the sizes of a lookup of `keys` keys with one part, without a lease.
MessageSizes LookupMessages(size_t keys);
// Returns the sizes of a put of `chunks` chunks of one run each, without metadata.
MessageSizes PutMessages(size_t chunks);

// A child process on the other end of a SEQPACKET socket that answers each request, with any
// content, with a reply; both block in the kernel. Longer messages are split into packets as in the
// local protocol. The process ends with the object.
class PingPong {
 public:
  static absl::StatusOr<std::unique_ptr<PingPong>> Start(MessageSizes sizes);
  ~PingPong();
  PingPong(const PingPong&) = delete;

  // Keeps `depth` requests under way. Unavailable: the other process is gone.
  absl::StatusOr<Measured> Run(int depth, double seconds);

 private:
  PingPong(MessageSizes sizes, UniqueFd socket, int pid)
      : sizes_(sizes), socket_(std::move(socket)), pid_(pid) {}

  const MessageSizes sizes_;
  UniqueFd socket_;
  const int pid_;
};

// Adds commands for a process that has not used gRPC, as a ping-pong forks. Regions and processes
// are made at the first call and reused in every round. "cold copy" {size, threads, seconds,
// region_bytes, mount_dir}: Measured, and region_bytes and huge_page_bytes of the regions, which
// grow if needed; mount_dir is the arena's, or empty for memfd. "ping-pong" {verb, keys, depth,
// seconds}: Measured, and request_bytes, reply_bytes: the messages of a call on `keys` keys.
// "touch" {bytes, threads, mount_dir}: {bytes, seconds} of fresh pages. "machine": {cpus,
// last_level_cache_bytes, cold_bytes}.
void AddBaselineCommands(Commands* commands);

}  // namespace kvkeep::bench
