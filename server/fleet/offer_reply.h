// OfferReply: one Offer call of another node, which leaves. It is answered once the store says what
// became of the chunks, or ends when the other node gives up; the chunks come all the same.
//
// gRPC and the store's answer hold it.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <vector>

#include "kvkeep/v1/peer.pb.h"
#include "server/fleet/caller_slots.h"
#include "server/fleet/fetch_stream.h"
#include "tiers/base/mutex.h"
#include "tiers/remote/offered_chunk.h"
#include "tiers/store/store.h"

namespace kvkeep {

class OfferReply final : public grpc::ServerUnaryReactor,
                         public std::enable_shared_from_this<OfferReply> {
 public:
  // What a node offers, and its turn.
  struct Offered {
    std::vector<OfferedChunk> chunks;
    CallerSlots::Share turn;
  };
  // `offered`, or the error that the call ends with. Borrows the rest, until gRPC is done.
  static OfferReply* Start(Store* store, ServedToPeers* served, absl::StatusOr<Offered> offered,
                           v1::OfferResponse* response);

  void OnCancel() override;
  void OnDone() override;

 private:
  OfferReply(Store* store, ServedToPeers* served, v1::OfferResponse* response)
      : incarnation_(store->incarnation()), served_(served), response_(response) {}
  void End(const absl::StatusOr<OfferAnswer>& answer);

  const Incarnation incarnation_;
  std::shared_ptr<OfferReply> self_;  // gRPC's reference, until OnDone
  Mutex mu_;
  // gRPC keeps both until Finish.
  ServedToPeers* const served_;
  v1::OfferResponse* const response_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace kvkeep
