// What the machine can do without kvkeep, measured in the same minutes as kvkeep: copies of cold
// memory, and messages thrown back and forth over a socket between two processes. Every figure of
// the table is a ratio to one of these. BaselineSet has those of an invocation. One thread uses an
// object.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tiers/base/unique_fd.h"
#include "tools/bench/case.h"
#include "tools/bench/measured.h"
#include "tools/bench/report.h"
#include "tools/bench/series.h"
#include "tools/bench/shared_pages.h"

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

// Of the caches of this machine; 32 MiB when it does not say.
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

// Made once, run again in every round beside what they are compared with.
class BaselineSet {
 public:
  // `mount_dir` of the arena, empty for memfd; `region_bytes` that copies go between, 0: enough to
  // be cold.
  explicit BaselineSet(std::string mount_dir, uint64_t region_bytes = 0)
      : mount_dir_(std::move(mount_dir)), region_bytes_(region_bytes) {}

  // One more round of cold copies of `size` bytes. Answers the series so far, which stays where it
  // is.
  absl::StatusOr<const Series*> Copy(uint64_t size, int threads, double seconds);
  // One more round of a ping-pong of the messages of that call on so many keys.
  absl::StatusOr<const Series*> PingPongOf(Verb verb, uint32_t keys, uint32_t depth,
                                           double seconds);

  void AddTo(Report* report) const;

 private:
  const std::string mount_dir_;
  const uint64_t region_bytes_;
  std::unique_ptr<ColdCopy> copy_;
  uint64_t copy_region_bytes_ = 0;
  std::map<std::pair<size_t, size_t>, std::unique_ptr<PingPong>> ping_pongs_;
  std::map<std::string, Series> series_;
};

}  // namespace kvkeep::bench
