#include "server/fleet/offer_reply.h"

#include <algorithm>
#include <utility>

#include "server/fleet/peer_wire.h"
#include "server/grpc/to_grpc.h"

namespace kvkeep {

OfferReply* OfferReply::Start(Store* store, ServedToPeers* served, absl::StatusOr<Offered> offered,
                              v1::OfferResponse* response) {
  const std::shared_ptr<OfferReply> reply(new OfferReply(store, served, response));
  reply->self_ = reply;
  if (!offered.ok()) {
    reply->End(offered.status());
  } else {
    // The turn ends with the store's answer, as the chunks may come for longer than the call lasts.
    const auto turn = std::make_shared<CallerSlots::Share>(std::move(offered->turn));
    store->TakeOffer(
        std::move(offered->chunks),
        [reply, turn](const absl::StatusOr<OfferAnswer>& answer) { reply->End(answer); });
  }
  return reply.get();  // gRPC calls OnDone only after it was handed the reactor
}

void OfferReply::OnCancel() { End(absl::CancelledError("the node that offered gave up")); }

void OfferReply::OnDone() { const std::shared_ptr<OfferReply> last = std::move(self_); }

void OfferReply::End(const absl::StatusOr<OfferAnswer>& answer) {
  {
    MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
  }
  if (answer.ok()) {
    const auto taken = static_cast<uint64_t>(
        std::count(answer->chunks.begin(), answer->chunks.end(), OfferEnd::kTaken));
    const auto refused = static_cast<uint64_t>(
        std::count(answer->chunks.begin(), answer->chunks.end(), OfferEnd::kRefused));
    served_->offered_chunks.fetch_add(answer->chunks.size(), std::memory_order_relaxed);
    served_->taken_chunks.fetch_add(taken, std::memory_order_relaxed);
    served_->untaken_chunks.fetch_add(refused, std::memory_order_relaxed);
    ToOfferResponse(*answer, response_);
  }
  Finish(ToGrpc(answer.status(), incarnation_));
}

}  // namespace kvkeep
