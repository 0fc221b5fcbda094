#include "server/local/peer_replies.h"

#include <utility>

#include "server/local/peer_scratch.h"

namespace kvkeep {

using local::Kind;

PeerReplies::PeerReplies(std::shared_ptr<const LocalContext> context, std::string peer,
                         PeerSink* sink)
    : context_(std::move(context)),
      peer_(std::move(peer)),
      sink_(sink),
      reply_(context_->scratch->reply) {}

void PeerReplies::Begin() {
  if (context_->times != nullptr) began_ = context_->times->Now();
}

void PeerReplies::NoteEnd(Operation operation, absl::StatusCode code, MonotonicTime began,
                          size_t keys) {
  if (context_->times == nullptr) return;
  context_->times->Note({Listener::kLocal, operation, code}, began,
                        [&] { return Requester{.peer = peer_, .keys = keys}; });
}

local::MessageWriter& PeerReplies::Start(Kind kind, uint64_t id) {
  reply_.Reset(static_cast<uint16_t>(kind) | local::kReplyBit, id);
  reply_.Append(local::ReplyHead{});
  return reply_;
}

local::MessageWriter& PeerReplies::StartBare(Kind kind, uint64_t id) {
  reply_.Reset(static_cast<uint16_t>(kind), id);
  return reply_;
}

void PeerReplies::Send(std::vector<UniqueFd> descriptors) {
  sink_->Send(reply_.Finish(), std::move(descriptors));
}

void PeerReplies::SendError(Kind kind, uint64_t id, const absl::Status& status) {
  context_->counters->errors.fetch_add(1, std::memory_order_relaxed);
  sink_->Send(local::StartReply(kind, id, status).Finish(), {});
}

void PeerReplies::SendEvent(Kind kind, const std::string& text) {
  local::MessageWriter event(static_cast<uint16_t>(kind), 0);
  event.AppendText(text);
  sink_->SendEvent(event.Finish());
}

}  // namespace kvkeep
