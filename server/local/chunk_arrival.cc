#include "server/local/chunk_arrival.h"

#include <utility>

namespace kvkeep {

ChunkArrival::ChunkArrival(std::shared_ptr<ProgressMemory> memory, uint32_t word)
    : memory_(std::move(memory)), word_(word) {}

void ChunkArrival::Follow(ChunkReader reader) {
  const size_t pieces = reader.shape().pieces();
  for (size_t piece = 0; piece < pieces; ++piece) {
    reader.WhenReady(piece, 1, [self = shared_from_this(), piece](absl::Status status) {
      self->OnPiece(piece, status);
    });
  }
}

void ChunkArrival::OnPiece(size_t piece, const absl::Status& status) {
  if (!status.ok()) {
    Fail();
    return;
  }
  // Under the lock, so that words only grow and none is written after End; waking never waits.
  MutexLock lock(&mu_);
  if (ended_) return;
  there_.set(piece);
  if (piece != leading_) return;
  while (leading_ < there_.size() && there_.test(leading_)) ++leading_;
  memory_->Publish(word_, leading_);
}

void ChunkArrival::Fail() {
  MutexLock lock(&mu_);
  if (std::exchange(ended_, true)) return;
  memory_->Publish(word_, leading_ | local::kProgressFailed);
}

void ChunkArrival::End() {
  MutexLock lock(&mu_);
  ended_ = true;
}

}  // namespace kvkeep
