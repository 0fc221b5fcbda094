// ChunkArrival: one leased chunk on its way from G3. Counts the leading pieces that are there in a
// progress word, as the store reports them.
//
// The store's threads call it, and it lives as long as they may. After End, which the session's
// thread calls, it no longer writes its word.
#pragma once

#include <absl/status/status.h>

#include <bitset>
#include <memory>

#include "server/local/progress_memory.h"
#include "tiers/base/mutex.h"
#include "tiers/store/store.h"

namespace kvkeep {

class ChunkArrival : public std::enable_shared_from_this<ChunkArrival> {
 public:
  ChunkArrival(std::shared_ptr<ProgressMemory> memory, uint32_t word);

  // Asks for every piece. The lease keeps the chunk in place, so the reader is not kept.
  void Follow(ChunkReader reader);
  // Reports that the chunk is lost: a miss.
  void Fail();
  // Ends the reports: the word is not written after this.
  void End();

 private:
  void OnPiece(size_t piece, const absl::Status& status);

  const std::shared_ptr<ProgressMemory> memory_;
  const uint32_t word_;
  Mutex mu_;
  std::bitset<kMaxPayloadBytes / kPieceBytes> there_ ABSL_GUARDED_BY(mu_);
  uint32_t leading_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // or failed
};

}  // namespace kvkeep
