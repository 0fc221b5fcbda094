// LocalPeer: lookups that ask beyond the node. Where the store searches, the request is kept until
// the search is over. Then it is looked up again, on the loop's thread.
#include <memory>
#include <utility>

#include "server/local/peer.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

using local::Kind;

absl::Status LocalPeer::LookupBeyond(const local::Message& message) {
  const auto kind = static_cast<Kind>(message.kind);
  // A request that may not be kept is answered from what is here.
  absl::StatusOr<MessageHold> hold = session_->HoldFor(message.body.size());
  const uint64_t number = next_job_++;
  const auto searched = [weak = weak_from_this(), loop = context_->loop, number] {
    loop->Post([weak, number] {
      if (const std::shared_ptr<LocalPeer> self = weak.lock()) self->OnSearched(number);
    });
  };
  Store& store = *context_->store;
  const auto result = hold.ok() ? store.LookupOrSearch(session_->token(), call_.lookup(), searched)
                                : store.Lookup(session_->token(), call_.lookup());
  if (result.has_value()) {
    KVKEEP_RETURN_IF_ERROR(result->status());
    return ReplyLookup(kind, message.id, **result, /*searched=*/false);
  }
  // The end of the search is posted to this thread, so it finds what is noted here.
  asking_[number] = {.kind = kind,
                     .id = message.id,
                     .began = replies_->began(),
                     .held = std::make_shared<MessageHold>(*std::move(hold)),
                     .body = {message.body.begin(), message.body.end()}};
  answered_later_ = true;
  return absl::OkStatus();
}

void LocalPeer::OnSearched(uint64_t number) {
  const auto found = asking_.find(number);
  if (found == asking_.end()) return;  // the connection ended
  const PeerAsking asking = std::move(found->second);
  asking_.erase(found);
  const auto look = [&]() -> absl::Status {
    if (!session_->open()) return absl::FailedPreconditionError("the session was revoked");
    KVKEEP_RETURN_IF_ERROR(call_.Parse(asking.kind, asking.body));  // other calls came meanwhile
    KVKEEP_RETURN_IF_ERROR(ResolveParts());
    LookupRequest request = call_.lookup();
    request.after_search = true;
    KVKEEP_ASSIGN_OR_RETURN(const LookupResult looked,
                            context_->store->Lookup(session_->token(), request));
    return ReplyLookup(asking.kind, asking.id, looked, /*searched=*/true);
  };
  const absl::Status status = look();
  if (!status.ok()) replies_->SendError(asking.kind, asking.id, status);
  const Operation operation =
      asking.kind == Kind::kLookup ? Operation::kLookup : Operation::kGet;
  replies_->NoteEnd(operation, status.code(), asking.began, call_.chunks().keys.size());
}

}  // namespace kvkeep
