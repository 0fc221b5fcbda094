#include "server/fleet/peer_service.h"

#include <absl/strings/ascii.h>

#include <algorithm>
#include <utility>

#include "server/grpc/byte_buffer.h"
#include "server/grpc/to_grpc.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/tenant_tag.h"

namespace kvkeep {
namespace {

// Keeps a node's turn until gRPC has sent the answer.
class HeldReply final : public grpc::ServerUnaryReactor {
 public:
  explicit HeldReply(CallerSlots::Share turn) : turn_(std::move(turn)) {}
  void OnDone() override { delete this; }

 private:
  const CallerSlots::Share turn_;
};

}  // namespace

PeerService::PeerService(const Options& options, Parts parts)
    : options_(options),
      store_(*parts.store),
      state_(*parts.state),
      callers_(*parts.callers),
      source_(*parts.source),
      summaries_(*parts.summaries),
      unreached_(std::move(parts.unreached)),
      budget_(options.limits) {}

absl::Status PeerService::Admit(const Context& context) {
  const absl::StatusOr<std::string> who = callers_.Who(context);
  if (!who.ok()) served_.refused.fetch_add(1, std::memory_order_relaxed);
  KVKEEP_RETURN_IF_ERROR(who.status());
  const v1::ServingState serving = state_.serving.load();
  if (serving == v1::SERVING_STATE_SERVING) return absl::OkStatus();
  if (serving == v1::SERVING_STATE_DRAINING && answers_in_drain_) return absl::OkStatus();
  return absl::UnavailableError("this node starts or drains");
}

absl::Status PeerService::AdmitNamespace(const NamespaceDigest& ns) {
  if (options_.shared_tenants.contains(TenantTagOf(ns))) return absl::OkStatus();
  served_.refused.fetch_add(1, std::memory_order_relaxed);
  return absl::PermissionDeniedError("this node shares no chunks of this tenant");
}

absl::Status PeerService::DoHello(const Context& context, const v1::PeerHelloRequest& request,
                                  v1::PeerHelloResponse* response) {
  KVKEEP_RETURN_IF_ERROR(Admit(context));
  if (request.fleet() != options_.seal.place.view()) {
    return absl::FailedPreconditionError(
        "fleet: this node has another fleet.name or fleet.key_file");
  }
  KVKEEP_ASSIGN_OR_RETURN(const uint32_t version, ChooseVersion(request));
  response->set_version(version);
  response->set_incarnation(store_.incarnation().value());
  return absl::OkStatus();
}

absl::Status PeerService::DoFind(const Context& context, const v1::FindRequest& request,
                                 v1::FindResponse* response) {
  KVKEEP_RETURN_IF_ERROR(Admit(context));
  KVKEEP_ASSIGN_OR_RETURN(const std::vector<ChunkId> ids, ParseFindRequest(request));
  KVKEEP_RETURN_IF_ERROR(AdmitNamespace(ids.front().ns));
  served_.finds.fetch_add(1, std::memory_order_relaxed);
  PeerSource::Found found(ids.size());
  if (budget_.serves()) found = store_.LookForPeer(ids);
  const auto there = std::count_if(found.begin(), found.end(),
                                   [](const auto& chunk) { return chunk.has_value(); });
  served_.found_chunks.fetch_add(static_cast<uint64_t>(there), std::memory_order_relaxed);
  ToFindResponse(found, response);
  return absl::OkStatus();
}

absl::Status PeerService::DoSummary(const Context& context, const v1::SummaryRequest& request,
                                    v1::SummaryResponse* response) {
  KVKEEP_RETURN_IF_ERROR(Admit(context));
  served_.summaries.fetch_add(1, std::memory_order_relaxed);
  // A node that serves nothing has nothing to name.
  const std::shared_ptr<const SummaryMaker::Made> made =
      budget_.serves() ? summaries_.Newest() : SummaryMaker::OfNothing();
  if (made == nullptr) return absl::OkStatus();
  response->set_version(made->version);
  if (made->version == request.version()) return absl::OkStatus();
  response->set_level(made->summary.level());
  response->set_bits(made->summary.bits());
  return absl::OkStatus();
}

absl::StatusOr<WantedImage> PeerService::ParseFetch(const Context& context,
                                                    const grpc::ByteBuffer& request) {
  KVKEEP_RETURN_IF_ERROR(Admit(context));
  v1::FetchRequest message;
  if (!ParseByteBuffer(request, &message)) {
    return absl::InvalidArgumentError("the request cannot be parsed");
  }
  KVKEEP_ASSIGN_OR_RETURN(const WantedImage wanted, ParseFetchRequest(message));
  KVKEEP_RETURN_IF_ERROR(AdmitNamespace(wanted.id.ns));
  return wanted;
}

absl::StatusOr<OfferReply::Offered> PeerService::ParseOffer(const Context& context,
                                                            const v1::OfferRequest& request) {
  KVKEEP_RETURN_IF_ERROR(Admit(context));
  const std::string node = absl::AsciiStrToLower(request.node());
  KVKEEP_RETURN_IF_ERROR(callers_.CheckIs(context, node));
  KVKEEP_ASSIGN_OR_RETURN(std::vector<OfferedChunk> chunks, ParseOfferRequest(request));
  KVKEEP_RETURN_IF_ERROR(AdmitNamespace(chunks.front().id.ns));
  // Not Unavailable, which would say that the node does not answer.
  if (state_.serving.load() != v1::SERVING_STATE_SERVING) {
    return absl::FailedPreconditionError("this node drains, too");
  }
  std::optional<CallerSlots::Share> turn = offers_.Take(node);
  if (!turn.has_value()) return absl::ResourceExhaustedError("the node's other offers come first");
  const absl::Status noted = source_.NoteHolder(node, chunks);
  if (absl::IsUnavailable(noted)) {
    unreached_(node);
    return absl::ResourceExhaustedError(noted.message());
  }
  KVKEEP_RETURN_IF_ERROR(noted);
  return OfferReply::Offered{std::move(chunks), *std::move(turn)};
}

grpc::ServerUnaryReactor* PeerService::Offer(Context* context, const v1::OfferRequest* request,
                                             v1::OfferResponse* response) {
  return OfferReply::Start(&store_, &served_, ParseOffer(*context, *request), response);
}

grpc::ServerUnaryReactor* PeerService::Reply(Context* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status, store_.incarnation()));
  return reactor;
}

grpc::ServerUnaryReactor* PeerService::Hello(Context* context, const v1::PeerHelloRequest* request,
                                             v1::PeerHelloResponse* response) {
  return Reply(context, DoHello(*context, *request, response));
}

grpc::ServerUnaryReactor* PeerService::Find(Context* context, const v1::FindRequest* request,
                                            v1::FindResponse* response) {
  return Reply(context, DoFind(*context, *request, response));
}

grpc::ServerUnaryReactor* PeerService::Summary(Context* context, const v1::SummaryRequest* request,
                                               v1::SummaryResponse* response) {
  const absl::StatusOr<std::string> who = callers_.Who(*context);
  if (!who.ok()) return Reply(context, DoSummary(*context, *request, response));  // refused
  std::optional<CallerSlots::Share> turn = summaries_of_one_.Take(*who);
  if (!turn.has_value()) {
    return Reply(context, absl::ResourceExhaustedError("the node's other calls come first"));
  }
  const absl::Status status = DoSummary(*context, *request, response);
  auto* const reply = new HeldReply(*std::move(turn));
  reply->Finish(ToGrpc(status, store_.incarnation()));
  return reply;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PeerService::Fetch(Context* context,
                                                               const grpc::ByteBuffer* request) {
  return FetchStream::Start({.store = &store_,
                             .state = &state_,
                             .budget = &budget_,
                             .served = &served_,
                             .seal = &options_.seal},
                            context, ParseFetch(*context, *request));
}

}  // namespace kvkeep
