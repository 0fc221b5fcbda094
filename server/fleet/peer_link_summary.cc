// PeerLink: the call by which it learns which chunks the other node has.
#include <memory>
#include <utility>

#include "server/fleet/peer_link.h"
#include "server/fleet/peer_wire.h"
#include "server/fleet/unary_call.h"

namespace kvkeep {

std::shared_ptr<const ChunkSummary> PeerLink::summary() const {
  MutexLock lock(&mu_);
  return summary_.newest;
}

void PeerLink::WantSummary(size_t most_bytes) {
  MutexLock lock(&mu_);
  summary_.most_bytes = most_bytes;
  if (most_bytes == 0) summary_.Forget();
}

void PeerLink::AskSummary() {
  const MonotonicTime now = parts_.clock->Now();
  uint64_t version = 0;
  {
    MutexLock lock(&mu_);
    if (summary_.most_bytes == 0 || summary_.asking || now < summary_.next) return;
    if (state_ != State::kUp) return;
    summary_.asking = true;
    summary_.next = now + options_.summary_every;
    version = summary_.version;
  }
  const std::optional<Begun> begun =
      BeginCall(now + options_.summary_within, {.watched = false, .is_use = false});
  if (!begun.has_value()) {
    MutexLock lock(&mu_);
    summary_.asking = false;
    return;
  }
  const auto call = std::make_shared<UnaryCall<v1::SummaryRequest, v1::SummaryResponse>>();
  call->request.set_version(version);
  call->stub = v1::Peer::NewStub(begun->channel);
  call->stub->async()->Summary(
      begun->context.get(), &call->request, &call->response,
      [self = shared_from_this(), begun = *begun, call](const grpc::Status& ended) {
        const absl::Status status = FromPeer(ended);
        self->OnSummary(status, std::move(call->response));
        self->NoteOutcome(begun.channel, status);
        self->EndCall(begun.number);
      });
}

void PeerLink::OnSummary(const absl::Status& status, v1::SummaryResponse response) {
  const MonotonicTime now = parts_.clock->Now();
  MutexLock lock(&mu_);
  summary_.asking = false;
  if (summary_.most_bytes == 0) return;  // none is wanted any more
  if (absl::IsUnimplemented(status)) {  // an older release, until it is another process
    summary_.next = now + options_.summary_refused;
  }
  if (!status.ok()) {
    ++told_.failed_summaries;
    return;
  }
  if (response.version() == 0) {  // it makes one now
    summary_.next = now + options_.hello_every;
    return;
  }
  if (response.version() == summary_.version) return;
  // Twice: while a list of nodes changes, two nodes may count unlike numbers of them.
  absl::StatusOr<ChunkSummary> summary =
      response.bits().size() > 2 * summary_.most_bytes
          ? absl::InvalidArgumentError("bits: more than a node of this fleet sends")
          : ChunkSummary::Parse(response.level(), std::move(*response.mutable_bits()));
  if (!summary.ok()) {
    ++told_.failed_summaries;
    summary_.next = now + options_.summary_refused;  // the next one will be alike
    return;
  }
  ++told_.summaries;
  summary_.newest = std::make_shared<const ChunkSummary>(*std::move(summary));
  summary_.version = response.version();
}

}  // namespace kvkeep
