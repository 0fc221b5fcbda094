// ColdReads: clients of one daemon, each in a process of its own, that get chunks which are on NVMe
// only: found, leased, read, verified by the daemon and laid open in its memory.
//
// They work in bursts. In a burst all begin together and get one chunk after the other, each asked
// for while the one before it is under way (kAskedAtOnce), as an engine does that knows its prefix;
// and they hold on to all of them. When the first has nothing left to ask for, nobody asks any
// more, and the clock runs until what is under way has come; its bytes count as well. Fio ends a
// timed run by the same rule. Then the clock stands, nobody reads, and every byte is compared and
// let go of. So a rate is that of all clients at once, and no client has the drive to itself while
// others are done or compare.
//
// Each client goes round and round in a part of the chunks that is its own: nobody gets what
// another one has just had promoted. Whether the bytes came from NVMe is the daemon's to say
// (promoted_bytes), and the caller's to ask. One thread; forks, so this process must not have
// touched gRPC.
#pragma once

#include <absl/status/statusor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "tools/bench/child_process.h"
#include "tools/bench/client_target.h"
#include "tools/bench/measured.h"

namespace kvkeep::compare {

struct ColdReadsOptions {
  bench::ClientTarget target;  // whose chunks 0 to chunks - 1 were put by clients of this seed
  uint32_t clients = 0;
  uint64_t size = 0;  // of a chunk
  uint64_t chunks = 0;
  uint64_t held_bytes = 0;  // at most, of all clients in a burst
  // At most. Long: at the end of a burst those that are done wait for the last one's chunk.
  double burst_seconds = 5;

  absl::Status Validate() const;
};

class ColdReads {
 public:
  static absl::StatusOr<std::unique_ptr<ColdReads>> Start(const ColdReadsOptions& options);

  // Bursts until their time comes to `seconds`. An error when any get failed, or a lease ended
  // before its bytes were compared.
  absl::StatusOr<bench::Measured> Run(double seconds);

  std::vector<int> pids() const;  // of the clients

  // Chunks that a client has asked for and not got yet, at most.
  static constexpr size_t kAskedAtOnce = 2;

  // In memory that the clients share: nobody asks for anything more in this burst.
  using BurstIsOver = std::atomic<bool>;
  static_assert(BurstIsOver::is_always_lock_free);

 private:
  struct Unmap {
    void operator()(BurstIsOver* shared) const;
  };

  ColdReads(const ColdReadsOptions& options, BurstIsOver* burst_is_over)
      : options_(options), burst_is_over_(burst_is_over) {}
  // What all answer to the same command, which they get at the same time.
  absl::StatusOr<std::vector<bench::Json>> AskAll(const bench::Json& command);

  const ColdReadsOptions options_;
  const std::unique_ptr<BurstIsOver, Unmap> burst_is_over_;
  std::vector<std::unique_ptr<bench::ChildProcess>> clients_;
};

}  // namespace kvkeep::compare
