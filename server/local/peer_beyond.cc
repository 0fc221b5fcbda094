// LocalPeer: lookups that ask beyond the node. With nothing to ask they are looked up at once.
// Otherwise the request is kept until the search is over, and is then looked up like any other, on
// the loop's thread.
#include <atomic>
#include <memory>
#include <utility>

#include "server/local/peer.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

using local::Kind;

namespace {

// The state of a question. It may be answered inside the call that asks, or on another thread.
enum class Question : uint8_t { kBeingAsked, kAnsweredNo, kAnsweredYes, kAwaited };

}  // namespace

absl::Status LocalPeer::AskBeyond(const local::Message& message) {
  const auto kind = static_cast<Kind>(message.kind);
  // A request that may not be kept is answered from what is here.
  absl::StatusOr<MessageHold> hold = HoldFor(message.body.size());
  if (!hold.ok()) return Lookup(kind, message.id, false);
  const uint64_t number = next_job_++;
  const auto question = std::make_shared<std::atomic<Question>>(Question::kBeingAsked);
  const auto asked = [question, weak = weak_from_this(), loop = context_->loop,
                      number](bool asked) {
    Question before = Question::kBeingAsked;
    if (question->compare_exchange_strong(
            before, asked ? Question::kAnsweredYes : Question::kAnsweredNo)) {
      return;
    }
    loop->Post([weak, number, asked] {
      if (const std::shared_ptr<LocalPeer> self = weak.lock()) self->OnAsked(number, asked);
    });
  };
  context_->store->AskBeyond(session_, call_.lookup(), asked);
  Question now = Question::kBeingAsked;
  if (!question->compare_exchange_strong(now, Question::kAwaited)) {
    return Lookup(kind, message.id, now == Question::kAnsweredYes);
  }
  // The answer is posted to this thread, so it finds what is noted here.
  asking_[number] = {.kind = kind,
                     .id = message.id,
                     .began = request_began_,
                     .held = std::make_shared<MessageHold>(*std::move(hold)),
                     .body = {message.body.begin(), message.body.end()}};
  answered_later_ = true;
  return absl::OkStatus();
}

void LocalPeer::OnAsked(uint64_t number, bool asked) {
  const auto found = asking_.find(number);
  if (found == asking_.end()) return;  // the connection ended
  const PeerAsking asking = std::move(found->second);
  asking_.erase(found);
  const auto look = [&]() -> absl::Status {
    if (state_ != State::kOpen) return absl::FailedPreconditionError("the session was revoked");
    KVKEEP_RETURN_IF_ERROR(call_.Parse(asking.kind, asking.body));  // other calls came meanwhile
    KVKEEP_RETURN_IF_ERROR(ResolveParts());
    return Lookup(asking.kind, asking.id, asked);
  };
  const absl::Status status = look();
  if (!status.ok()) ReplyError(static_cast<uint16_t>(asking.kind), asking.id, status);
  const Operation operation =
      asking.kind == Kind::kLookup ? Operation::kLookup : Operation::kGet;
  NoteEnd(operation, status.code(), asking.began, call_.chunks().keys.size());
}

}  // namespace kvkeep
