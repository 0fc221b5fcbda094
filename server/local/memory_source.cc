#include "server/local/memory_source.h"

#include <utility>

#include "tiers/base/status_macros.h"

namespace kvkeep {

MemorySource::MemorySource(std::shared_ptr<const LocalContext> context, PutPlan* plan, Put* put)
    : context_(std::move(context)), plan_(plan), put_(put) {}

void MemorySource::Fetch(std::span<const PutPiece> /*pieces*/) { put_->OnReady(kAllPieces); }

absl::Status MemorySource::Fill(const PutPiece& piece, Wait wait, Reservation* space) {
  const PutPlan::ReadBy read =
      wait == Wait::kNever ? &ClientMemory::ReadByCall : &ClientMemory::Read;
  KVKEEP_RETURN_IF_ERROR(space->FillPiece(
      piece.piece, [&](uint64_t offset, uint64_t bytes, Reservation::GivePayload give) {
        return plan_->ReadPayload(piece.chunk, offset, bytes, read, give);
      }));
  return plan_->CheckInTime(*context_->clock);
}

void MemorySource::Drop() { plan_->DropMemory(); }

}  // namespace kvkeep
