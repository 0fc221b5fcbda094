// RecordPipe: passes index records, in batches, from a thread that reads and decodes them to a
// thread that uses them, so that both work at once. Holds at most kMaxWaiting batches; the thread
// that is ahead waits.
//
// One thread puts, another takes. Either may end the pipe; then calls of the other return at once.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/index/record.h"

namespace kvkeep {

class RecordPipe {
 public:
  static constexpr size_t kBatchRecords = 1024;
  static constexpr size_t kMaxWaiting = 4;

  struct Batch {
    std::vector<IndexRecord> records;
    uint64_t undecodable = 0;  // met on the way
  };

  // Returns false if nobody takes any more.
  bool Put(Batch batch);
  void EndOfRecords();
  // Returns nullopt if there are no more.
  std::optional<Batch> Take();
  void StopTaking();

 private:
  Mutex mu_;
  CondVar changed_;
  std::deque<Batch> waiting_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace kvkeep
