// Speed of the machine without kvkeep, measured in the same minutes as kvkeep: copies of cold
// memory, and messages thrown back and forth over a socket between two processes. Every figure of
// the table is a ratio to one of these. One thread uses an object.
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

// Bytes of this machine's last-level caches; 32 MiB when it does not say.
uint64_t LastLevelCacheBytes();
// Memory that is cold when it was gone through: four times that, at least 256 MiB.
uint64_t ColdBytes();

// How many bytes a call of the local protocol puts on the socket and gets back, from the structs of
// proto/local/protocol.h: what a bare ping-pong must carry to be compared with it.
struct MessageSizes {
  size_t request_bytes = 0;
  size_t reply_bytes = 0;
};
// A get of `keys` present chunks, one part and one run each, which gives the lease of an earlier
// one back on the way.
MessageSizes GetMessages(size_t keys);
// A lookup of `keys` keys with one part, without a lease.
MessageSizes LookupMessages(size_t keys);
// A put of `chunks` chunks of one run each, without metadata.
MessageSizes PutMessages(size_t chunks);

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

 private:
  PingPong(MessageSizes sizes, UniqueFd socket, int pid)
      : sizes_(sizes), socket_(std::move(socket)), pid_(pid) {}

  const MessageSizes sizes_;
  UniqueFd socket_;
  const int pid_;
};

// Commands for a process that has not touched gRPC: a ping-pong forks. Regions and processes are
// made at the first call and used again in every round.
// "cold copy" {size, threads, seconds, region_bytes, mount_dir}: Measured, and region_bytes and
// huge_page_bytes of the regions, which grow where they must; mount_dir is the arena's, or empty
// for memfd. "ping-pong" {verb, keys, depth, seconds}: Measured, and request_bytes, reply_bytes:
// the messages of a call on so many keys. "touch" {bytes, threads, mount_dir}: {bytes, seconds} of
// fresh pages. "machine": {cpus, last_level_cache_bytes, cold_bytes}.
void AddBaselineCommands(Commands* commands);

}  // namespace kvkeep::bench
