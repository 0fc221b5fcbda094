#include "server/fleet/fetch_call.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/fleet/peer_wire.h"
#include "server/grpc/byte_buffer.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr char kMethod[] = "/kvkeep.v1.Peer/Fetch";

uint64_t ImageBytes(const RemoteSource::ReadRequest& request) {
  return request.shape.blocks().value() * kBlockBytes;
}

// Fills what follows the image's last used byte, which no node sends.
void ZeroTheRest(const RemoteSource::ReadRequest& request) {
  for (uint64_t at = request.shape.used_bytes(); at < ImageBytes(request);) {
    const std::span<std::byte> rest = request.memory(at, ImageBytes(request) - at);
    KVKEEP_CHECK(!rest.empty());
    std::fill(rest.begin(), rest.end(), std::byte{0});
    at += rest.size();
  }
}

// Reports the bytes from `told` up to `to`, which lie in whole pieces or the end of one.
void TellPieces(const RemoteSource::ReadRequest& request, uint64_t* told, uint64_t to,
                const absl::Status& status) {
  while (*told < to) {
    const size_t piece = (*told - kHeaderBytes) / kPieceBytes;
    const size_t last = request.shape.pieces() - 1;
    const size_t within = std::min(piece, last);  // the last piece has the tail, too
    const uint64_t end = std::min(request.shape.piece_end(within), to);
    const uint64_t bytes = end - *told;
    *told = end;
    request.piece_done(within, bytes, status);
  }
}

}  // namespace

void FetchCall::Start(std::shared_ptr<PeerLink> link, PeerLink::Begun begun,
                      RemoteSource::ReadRequest request) {
  auto* const call = new FetchCall(std::move(link), std::move(begun), std::move(request));
  call->stub_.PrepareBidiStreamingCall(call->begun_.context.get(), kMethod, grpc::StubOptions(),
                                       call);
  call->StartWriteLast(&call->sent_, grpc::WriteOptions());
  call->StartRead(&call->frame_);
  call->StartCall();
}

void FetchCall::Refuse(const RemoteSource::ReadRequest& request, const absl::Status& why) {
  request.header_done(why);
  uint64_t told = kHeaderBytes;
  TellPieces(request, &told, ImageBytes(request), why);
}

FetchCall::FetchCall(std::shared_ptr<PeerLink> link, PeerLink::Begun begun,
                     RemoteSource::ReadRequest request)
    : link_(std::move(link)),
      begun_(std::move(begun)),
      request_(std::move(request)),
      stub_(begun_.channel),
      sent_(ToByteBuffer(ToFetchRequest(request_.id, request_.shape).SerializeAsString())) {}

void FetchCall::OnReadDone(bool ok) {
  if (!ok) return;  // OnDone comes
  link_->NoteHeard(begun_.number);
  refused_ = Take();
  frame_.Clear();
  if (!refused_.ok()) return begun_.context->TryCancel();
  StartRead(&frame_);
}

absl::Status FetchCall::Take() {
  const BufferRuns runs(frame_);
  KVKEEP_ASSIGN_OR_RETURN(const ReceivedFetchFrame frame, ParseFetchFrame(runs.runs()));
  const bool first = at_ == 0;
  if (first) {
    if (frame.header.size() != kHeaderBytes || frame.offset != 0) {
      return absl::DataLossError("the first frame has no header page");
    }
    std::memcpy(request_.header.data(), frame.header.data(), kHeaderBytes);
    at_ = told_ = kHeaderBytes;
    request_.header_done(absl::OkStatus());
  } else if (!frame.header.empty() || frame.offset != at_) {
    return absl::DataLossError("a frame is not the next one");
  }
  const uint64_t used = request_.shape.used_bytes();
  if (frame.image_bytes > used - at_) {
    return absl::DataLossError("more bytes came than the image has");
  }
  for (WireRun run : frame.image) {
    while (!run.empty()) {
      const std::span<std::byte> to = request_.memory(at_, run.size());
      KVKEEP_CHECK(!to.empty() && to.size() <= run.size());
      std::memcpy(to.data(), run.data(), to.size());
      run = run.subspan(to.size());
      at_ += to.size();
    }
  }
  if (at_ == used) {
    ZeroTheRest(request_);
    at_ = ImageBytes(request_);
  }
  // Only whole pieces, so that each is told once.
  uint64_t whole = told_;
  for (size_t piece = (told_ - kHeaderBytes) / kPieceBytes; piece < request_.shape.pieces();
       ++piece) {
    const uint64_t end = request_.shape.piece_end(piece);
    if (end > at_) break;
    whole = end;
  }
  TellPieces(request_, &told_, whole, absl::OkStatus());
  return absl::OkStatus();
}

void FetchCall::TellRest(const absl::Status& why) {
  if (told_ == 0) {
    told_ = kHeaderBytes;
    request_.header_done(why);
  }
  TellPieces(request_, &told_, ImageBytes(request_), why);
}

void FetchCall::OnDone(const grpc::Status& status) {
  const std::unique_ptr<FetchCall> self(this);
  absl::Status ended = refused_.ok() ? FromPeer(status) : refused_;
  if (ended.ok() && at_ < ImageBytes(request_)) {
    ended = absl::DataLossError("the image ended early");
  }
  const bool again = link_->EndFetch(begun_, request_, told_ == 0, ended,
                                     at_ - std::min<uint64_t>(at_, kHeaderBytes));
  if (!again) {
    if (!ended.ok()) TellRest(ended);
    KVKEEP_CHECK(told_ == ImageBytes(request_));
  }
  link_->EndCall(begun_.number);
  link_->StartReads();
}

}  // namespace kvkeep
