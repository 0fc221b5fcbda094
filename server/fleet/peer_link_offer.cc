// PeerLink::Offer: the link's call by which the other node takes chunks of this one.
#include <memory>
#include <utility>

#include "server/fleet/peer_link.h"
#include "server/fleet/peer_wire.h"
#include "server/fleet/unary_call.h"
#include "tiers/base/check.h"

namespace kvkeep {

void PeerLink::Offer(std::vector<OfferedChunk> chunks, MonotonicTime deadline,
                     std::function<void(absl::StatusOr<OfferAnswer>)> done) {
  KVKEEP_CHECK(!chunks.empty() && chunks.size() <= kMostChunksAFind);
  // Not watched for a stall: the other node answers once it has read the chunks.
  std::optional<Begun> begun = BeginCall(deadline, {});
  if (!begun.has_value()) {
    parts_.executor->Post(
        [done = std::move(done)] { done(absl::UnavailableError("the peer is not reachable")); });
    return;
  }
  const auto call = std::make_shared<UnaryCall<v1::OfferRequest, v1::OfferResponse>>();
  call->request = ToOfferRequest(chunks);
  call->request.set_node(options_.node);
  call->stub = v1::Peer::NewStub(begun->channel);
  call->stub->async()->Offer(
      begun->context.get(), &call->request, &call->response,
      [self = shared_from_this(), begun = *begun, call, offered = chunks.size(),
       done = std::move(done)](const grpc::Status& ended) {
        const absl::Status status = FromPeer(ended);
        self->NoteOutcome(begun.channel, status);
        done(status.ok() ? ParseOfferResponse(call->response, offered)
                         : absl::StatusOr<OfferAnswer>(status));
        self->EndCall(begun.number);
      });
}

}  // namespace kvkeep
