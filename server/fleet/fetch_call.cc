#include "server/fleet/fetch_call.h"

#include <utility>

#include "server/fleet/peer_wire.h"
#include "server/grpc/byte_buffer.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr char kMethod[] = "/kvkeep.v1.Peer/Fetch";

// Returns the error as a reader of the image has it: a read that took too long, or was given up, is
// one that was not answered.
absl::Status ForReader(const absl::Status& ended) {
  const bool late = absl::IsDeadlineExceeded(ended) || absl::IsAborted(ended);
  return late ? absl::UnavailableError(ended.message()) : ended;
}

}  // namespace

void FetchCall::Start(std::shared_ptr<PeerLink> link, PeerLink::Begun begun, PeerRead read) {
  auto* const call = new FetchCall(std::move(link), std::move(begun), std::move(read));
  call->stub_.PrepareBidiStreamingCall(call->begun_.context.get(), kMethod, grpc::StubOptions(),
                                       call);
  call->StartWriteLast(&call->sent_, grpc::WriteOptions());
  call->StartRead(&call->frame_);
  call->StartCall();
}

FetchCall::FetchCall(std::shared_ptr<PeerLink> link, PeerLink::Begun begun, PeerRead read)
    : link_(std::move(link)),
      begun_(std::move(begun)),
      read_(std::move(read)),
      stub_(begun_.channel),
      sent_(
          ToByteBuffer(ToFetchRequest(read_.request.id, read_.request.shape).SerializeAsString())),
      image_(&read_) {}

void FetchCall::OnReadDone(bool ok) {
  if (!ok) return;  // OnDone comes
  link_->NoteHeard(begun_.number);
  refused_ = image_.Take(BufferRuns(frame_).runs());
  frame_.Clear();
  if (!refused_.ok()) return begun_.context->TryCancel();
  StartRead(&frame_);
}

void FetchCall::OnDone(const grpc::Status& status) {
  const std::unique_ptr<FetchCall> self(this);
  absl::Status ended = refused_.ok() ? FromPeer(status) : refused_;
  if (ended.ok() && !image_.complete()) ended = absl::DataLossError("the image ended early");
  const bool again = link_->EndFetch(begun_, read_, image_.untold(), &ended, image_.body_bytes());
  if (!again && !ended.ok()) image_.TellRest(ForReader(ended));
  link_->EndCall(begun_.number);
  link_->StartReads();
}

}  // namespace kvkeep
