#include "client/grpc/put_frames.h"

#include <algorithm>

#include "client/grpc/wire.h"
#include "client/transport/check_call.h"
#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep::client {
namespace {

// Less than the daemon accepts, so that it copies one frame while the next is coming.
constexpr uint64_t kMaxFrameBytes = 2 * kMiB;

}  // namespace

v1::PutChunkHeader ChunkHeaderOf(const PutChunk& chunk, const PutOptions& options) {
  v1::PutChunkHeader header;
  header.set_key(std::string(chunk.key.view()));
  header.set_part(chunk.part);
  header.set_payload_bytes(PayloadBytes(chunk));
  header.set_durable(options.durable);
  if (options.checksum) header.set_checksum(PayloadChecksum(chunk));
  header.set_metadata(chunk.metadata);
  if (chunk.parent_key.has_value()) {
    header.mutable_hints()->set_parent_key(std::string(chunk.parent_key->view()));
  }
  if (options.transient) header.mutable_hints()->set_transient(true);
  if (options.no_g3) header.mutable_hints()->set_no_g3(true);
  return header;
}

PutFrames::PutFrames(Header header, const PutOptions& options, const std::vector<PutChunk>* chunks,
                     std::vector<uint32_t> send, SliceGuard* guard)
    : header_(std::move(header)),
      options_(options),
      chunks_(chunks),
      send_(std::move(send)),
      guard_(guard) {}

std::vector<grpc::Slice> PutFrames::TakePayload(uint64_t limit) {
  const PutChunk& chunk = (*chunks_)[send_[next_]];
  std::vector<grpc::Slice> slices;
  while (limit > 0 && run_ < chunk.runs.size()) {
    const std::span<const std::byte> run = chunk.runs[run_].subspan(run_at_);
    const size_t step = std::min<uint64_t>(limit, run.size());
    if (step > 0) {
      guard_->Made();
      // gRPC only reads through the pointer; its type has no const form.
      slices.emplace_back(
          const_cast<std::byte*>(run.data()), step,
          [](void* guard) { static_cast<SliceGuard*>(guard)->Gone(); }, guard_);
    }
    limit -= step;
    sent_ += step;
    run_at_ += step;
    if (run_at_ == chunk.runs[run_].size()) {
      ++run_;
      run_at_ = 0;
    }
  }
  return slices;
}

grpc::ByteBuffer PutFrames::Next() {
  KVKEEP_CHECK(!done());
  const PutChunk& chunk = (*chunks_)[send_[next_]];
  v1::PutFrame head;
  if (first_) {
    head.mutable_stream()->set_session_token(header_.session_token);
    head.mutable_stream()->set_namespace_digest(header_.namespace_digest);
    first_ = false;
  }
  if (sent_ == 0) *head.mutable_chunk() = ChunkHeaderOf(chunk, options_);
  const uint64_t limit = header_.max_frame_bytes == 0
                             ? kMaxFrameBytes
                             : std::min(header_.max_frame_bytes, kMaxFrameBytes);
  grpc::ByteBuffer frame = wire::AppendPayload(head, TakePayload(limit));
  if (sent_ == PayloadBytes(chunk)) {
    ++next_;
    sent_ = 0;
    run_ = 0;
    run_at_ = 0;
  }
  return frame;
}

}  // namespace kvkeep::client
