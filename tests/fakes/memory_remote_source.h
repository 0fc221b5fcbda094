// MemoryRemoteSource: the images beyond the node, in memory, with faults; for the store's tests and
// the simulator. Its bucket outlives processes, and several nodes may share one.
//
// Requests are carried out step by step on an executor of the test, in any order. With faults it
// fails, answers late, lies about its images, flips bits, returns another image, publishes half an
// image, and loses answers to finished requests. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/fakes/manual_executor.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/remote/remote_source.h"

namespace kvkeep {

// Images, header page first. Reads under way see an overwritten image whole.
using MemoryBucket = std::map<ChunkId, std::shared_ptr<const std::vector<std::byte>>>;
// When each was written.
using MemoryBucketTimes = std::map<ChunkId, MonotonicTime>;

struct RemoteFaults {
  double delay = 0;        // of each step: it comes some turns later
  double hides = 0;        // a search does not find an image that is there
  double finds_other = 0;  // or with another shape
  double read_error = 0, corrupt_read = 0, other_read = 0;
  double write_error = 0, half_written = 0, answer_lost = 0;
  double remove_error = 0;
  double away = 0;  // of requests: it is not readable and not writable

  double sum() const {
    return hides + finds_other + read_error + corrupt_read + other_read + write_error +
           half_written + answer_lost + remove_error + away;
  }
};

class MemoryRemoteSource final : public RemoteSource {
 public:
  MemoryRemoteSource(MemoryBucket* bucket, ManualExecutor* executor, uint64_t seed,
                     const RemoteFaults& faults);

  // It ignores deadlines: the test decides when answers come.
  void Find(std::vector<ChunkId> ids, Wanted wanted, MonotonicTime deadline,
            std::function<void(Found)> done) override;
  // 0 s for existing images, unless it is given the time.
  void Age(const ChunkId& id,
           std::function<void(absl::StatusOr<std::chrono::seconds>)> done) override;
  void Read(ReadRequest request) override;
  // Replaces images, like a store without conditions; but see `keeps_existing`.
  void Write(WriteRequest request) override;
  void Remove(const ChunkId& id, std::function<void(absl::Status)> done) override;
  bool readable() const override { return !Happens(faults_.away); }
  bool writable() const override { return !full && !Happens(faults_.away); }
  bool may_find(const NamespaceDigest&) const override { return asks; }
  bool may_ask_age() const override { return asks; }
  bool keeps() const override { return !only_peers; }
  const Uuid& place() const override { return place_; }
  const MacKey& mac_key() const override { return mac_key_; }

  void set_faults(const RemoteFaults& faults) { faults_ = faults; }
  // From then on images have an age. Both outlive this.
  void TellTime(const Clock* clock, MemoryBucketTimes* written) {
    clock_ = clock;
    written_ = written;
  }
  bool full = false;   // it takes no writes
  bool asks = true;    // else it refuses more requests
  bool keeps_existing = false;  // existing images stay, unless a write must replace them
  bool only_peers = false;      // nobody may write, remove or ask for an age; set it at the start
  std::optional<Wanted> last_wanted;  // by a search
  uint64_t ages_asked = 0, writes = 0, replacing_writes = 0;
  uint64_t faults_injected() const { return injected_; }
  // Deadlines of the last search and the last read.
  MonotonicTime find_deadline{0}, read_deadline{0};

 private:
  bool Happens(double chance) const;
  void Later(Executor::Task task, int turns = -1);
  struct Reading {
    ReadRequest request;
    MemoryBucket::mapped_type image;  // once some of it was read
  };
  std::chrono::seconds AgeOf(const ChunkId& id) const;
  void ReadPart(const std::shared_ptr<Reading>& reading, size_t piece, uint64_t at,
                uint64_t bytes);
  absl::Status Copy(Reading& reading, uint64_t at, std::span<std::byte> to);

  MemoryBucket& bucket_;
  ManualExecutor& executor_;
  mutable SeededRandom random_;
  RemoteFaults faults_;
  const Clock* clock_ = nullptr;
  MemoryBucketTimes* written_ = nullptr;
  Uuid place_;
  MacKey mac_key_{};
  mutable uint64_t injected_ = 0;
};

}  // namespace kvkeep
