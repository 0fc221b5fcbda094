#include "server/local/gpu_source.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// Limits of one copy by a GPU, which the last piece may exceed: large enough to keep it busy, and
// small enough that several are under way and the last one's checksums are short.
constexpr size_t kMaxFetchRuns = 4096;
constexpr uint64_t kMaxFetchBytes = 8 * kMiB;

}  // namespace

GpuSource::GpuSource(std::shared_ptr<const LocalContext> context, PutPlan* plan, Put* put)
    : context_(std::move(context)),
      plan_(plan),
      put_(put),
      deadline_(std::min(context_->clock->Now() + plan->timeout(), plan->until())) {
  KVKEEP_CHECK(plan->gpu() != nullptr);
}

void GpuSource::Fetch(std::span<const PutPiece> pieces) {
  std::vector<Order> orders = Orders(pieces);
  {
    MutexLock lock(&mu_);
    size_t end_piece = groups_.empty() ? 0 : groups_.back().end_piece;
    groups_.clear();
    for (const Order& order : orders) {
      end_piece += order.pieces;
      groups_.push_back({.end_piece = end_piece});
    }
    fenced_groups_ = 0;
    copies_left_ = groups_.size();
  }
  for (size_t g = 0; g < orders.size(); ++g) Copy(g, std::move(orders[g]));
}

std::vector<GpuSource::Order> GpuSource::Orders(std::span<const PutPiece> pieces) const {
  std::vector<Order> orders;
  for (const auto& [chunk, piece] : pieces) {
    if (orders.empty() || orders.back().runs.size() >= kMaxFetchRuns ||
        orders.back().bytes >= kMaxFetchBytes) {
      orders.emplace_back();
    }
    Order& order = orders.back();
    const local::PutChunk& wire = plan_->chunks()[chunk];
    const uint64_t bytes = PieceSize(wire.payload_bytes, piece);
    plan_->gpu()->Append(wire.first_run, uint64_t{piece} * kPieceBytes, bytes, put_->extents(chunk),
                         &order.runs);
    if (order.chunks.empty() || order.chunks.back() != chunk) order.chunks.push_back(chunk);
    ++order.pieces;
    order.bytes += bytes;
  }
  return orders;
}

void GpuSource::Copy(size_t group, Order order) {
  if (cancelled_.load(std::memory_order_relaxed)) {  // its registrations are given back
    return OnCopied(group, order.chunks, {.status = absl::CancelledError("the session ended")});
  }
  GpuCopy copy{
      .direction = CopyDirection::kToArena, .runs = std::move(order.runs), .deadline = deadline_};
  plan_->gpu()->Copy(std::move(copy), context_->counters,
                     [this, hold = put_->Hold(), group, chunks = std::move(order.chunks)](
                         const CopyEnd& end) { OnCopied(group, chunks, end); });
}

void GpuSource::OnCopied(size_t group, const std::vector<uint32_t>& chunks, const CopyEnd& end) {
  const absl::Status status = end.status.ok() ? plan_->CheckInTime(*context_->clock) : end.status;
  for (const uint32_t chunk : chunks) {
    if (!status.ok()) put_->Lose(chunk, status);
  }
  bool last = false, unfenced = false;
  {
    MutexLock lock(&mu_);
    unfenced_ = unfenced_ || !end.fenced;
    last = --copies_left_ == 0;
    unfenced = unfenced_;
  }
  // Until this group is noted, the round goes on and no other thread touches the plan.
  if (last && unfenced) {
    // The space of an unfenced copy is never used again. Nothing behind it is sealed.
    context_->counters->gpu_kept_requests.fetch_add(1, std::memory_order_relaxed);
    context_->gpu->KeepForEver(put_->Hold());
    return;
  }
  if (last) put_->OnFetched();
  size_t ready = 0;
  {
    MutexLock lock(&mu_);
    groups_[group].fenced = end.fenced;
    while (fenced_groups_ < groups_.size() && groups_[fenced_groups_].fenced) {
      ready = groups_[fenced_groups_++].end_piece;
    }
  }
  put_->OnReady(ready);
}

absl::Status GpuSource::Fill(const PutPiece& piece, Wait /*wait*/, Reservation* space) {
  space->ChecksumPiece(piece.piece);
  return absl::OkStatus();
}

void GpuSource::Drop() { plan_->DropMemory(); }

}  // namespace kvkeep
