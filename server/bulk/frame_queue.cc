#include "server/bulk/frame_queue.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr size_t kMostRunsAtOnce = 64;

}  // namespace

void FrameQueue::Add(bulk::FrameKind kind, const google::protobuf::MessageLite& message) {
  const std::string bytes = message.SerializeAsString();
  frames_.push_back({.head = bulk::EncodeHead(kind, bytes.size(), 0) + bytes});
}

void FrameQueue::Add(const GetFrames::Frame& frame) {
  const GetFrameHeader& header = frame.header;
  v1::GetFrame message;
  message.set_key_index(header.key_index);
  message.set_part_index(header.part_index);
  message.set_status(header.status);
  message.set_offset(header.offset);
  message.set_payload_bytes(header.chunk_payload_bytes);
  message.set_last(header.last);
  message.mutable_piece_checksums()->Add(header.piece_checksums.begin(),
                                         header.piece_checksums.end());
  message.set_metadata(header.metadata);
  const std::string bytes = message.SerializeAsString();
  Queued queued{
      .head = bulk::EncodeHead(bulk::FrameKind::kChunk, bytes.size(), header.frame_payload_bytes) +
              bytes};
  if (header.frame_payload_bytes > 0) {
    KVKEEP_CHECK(frame.pin != nullptr);
    queued.pin = frame.pin;
    queued.begin = header.offset;
    queued.end = header.offset + header.frame_payload_bytes;
  }
  frames_.push_back(std::move(queued));
}

void FrameQueue::Gather(uint64_t most) {
  runs_.clear();
  uint64_t gathered = 0;
  for (const Queued& frame : frames_) {
    uint64_t at = frame.written;
    while (at < frame.bytes()) {
      if (gathered >= most || runs_.size() == kMostRunsAtOnce) return;
      std::span<const std::byte> run;
      if (at < frame.head.size()) {
        run = std::as_bytes(std::span(frame.head)).subspan(at);
      } else {
        const uint64_t offset = frame.begin + (at - frame.head.size());
        run = frame.pin->reader.Payload(offset, frame.end - offset);
      }
      runs_.push_back({.iov_base = const_cast<std::byte*>(run.data()), .iov_len = run.size()});
      at += run.size();
      gathered += run.size();
    }
  }
}

ByteStream::Moved FrameQueue::WriteTo(ByteStream& stream, uint64_t most) {
  Gather(most);
  const ByteStream::Moved moved = stream.Write(runs_);
  for (size_t left = moved.bytes; left > 0;) {
    Queued& front = frames_.front();
    const uint64_t step = std::min<uint64_t>(left, front.bytes() - front.written);
    front.written += step;
    left -= step;
    if (front.written == front.bytes()) frames_.pop_front();
  }
  return moved;
}

}  // namespace kvkeep
