// PeerService: the gRPC service kvkeep.v1.Peer over a Store: what this node tells and sends to
// others of its fleet, and what it takes of those that leave. Only peers may call it (PeerCallers),
// and only for namespaces of tenants that are shared. What it serves is bounded by a ServeBudget; a
// refusal is quick, as the asker has other sources.
//
// Handlers run on gRPC's callback threads and never wait. Thread-safe.
#pragma once

#include <absl/container/flat_hash_set.h>

#include "kvkeep/v1/peer.grpc.pb.h"
#include "server/access/peer_callers.h"
#include "server/fleet/caller_slots.h"
#include "server/fleet/fetch_stream.h"
#include "server/fleet/offer_reply.h"
#include "server/fleet/peer_wire.h"
#include "server/fleet/serve_budget.h"
#include "server/fleet/summary_maker.h"
#include "tiers/remote/fleet_source.h"

namespace kvkeep {

namespace peer_service_internal {
using Peer = v1::Peer;
using Base =
    Peer::WithRawCallbackMethod_Fetch<Peer::WithCallbackMethod_Hello<Peer::WithCallbackMethod_Find<
        Peer::WithCallbackMethod_Summary<Peer::WithCallbackMethod_Offer<Peer::Service>>>>>;
}  // namespace peer_service_internal

class PeerService final : public peer_service_internal::Base {
 public:
  struct Options {
    FleetSeal seal;
    ServeBudget::Limits limits;
    absl::flat_hash_set<uint32_t> shared_tenants;  // by TenantTagOf
  };
  // Calls of one node under way.
  static constexpr int kMostOffersOfOne = 2, kMostSummariesOfOne = 2;

  // All are borrowed, and outlive the service and the calls that it serves.
  struct Parts {
    Store* store;
    ServerState* state;
    const PeerCallers* callers;
    FleetSource* source;  // gets the chunks that other nodes offer from them
    SummaryMaker* summaries;
    // Called for a node that offers chunks and that this one does not reach.
    std::function<void(const std::string& node)> unreached;
  };
  PeerService(const Options& options, Parts parts);

  // From here on, other nodes are answered while this one drains, too, but for their offers.
  void AnswerInDrain() { answers_in_drain_ = true; }
  const ServedToPeers& served() const { return served_; }

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* Hello(Context* context, const v1::PeerHelloRequest* request,
                                  v1::PeerHelloResponse* response) override;
  grpc::ServerUnaryReactor* Find(Context* context, const v1::FindRequest* request,
                                 v1::FindResponse* response) override;
  grpc::ServerUnaryReactor* Summary(Context* context, const v1::SummaryRequest* request,
                                    v1::SummaryResponse* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Fetch(Context* context,
                                                    const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Offer(Context* context, const v1::OfferRequest* request,
                                  v1::OfferResponse* response) override;

 private:
  absl::Status Admit(const Context& context);
  // Returns OK if chunks of this namespace are served.
  absl::Status AdmitNamespace(const NamespaceDigest& ns);
  absl::Status DoHello(const Context& context, const v1::PeerHelloRequest& request,
                       v1::PeerHelloResponse* response);
  absl::Status DoFind(const Context& context, const v1::FindRequest& request,
                      v1::FindResponse* response);
  absl::Status DoSummary(const Context& context, const v1::SummaryRequest& request,
                         v1::SummaryResponse* response);
  absl::StatusOr<WantedImage> ParseFetch(const Context& context, const grpc::ByteBuffer& request);
  absl::StatusOr<OfferReply::Offered> ParseOffer(const Context& context,
                                                 const v1::OfferRequest& request);
  grpc::ServerUnaryReactor* Reply(Context* context, const absl::Status& status);

  const Options options_;
  Store& store_;
  ServerState& state_;
  const PeerCallers& callers_;
  FleetSource& source_;
  SummaryMaker& summaries_;
  const std::function<void(const std::string&)> unreached_;
  CallerSlots offers_{kMostOffersOfOne};
  CallerSlots summaries_of_one_{kMostSummariesOfOne};
  std::atomic<bool> answers_in_drain_{false};
  ServeBudget budget_;
  ServedToPeers served_;
};

}  // namespace kvkeep
