#include "client/grpc/wire.h"

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <cstring>

#include "kvkeep/v1/kvkeep.pb.h"
#include "tiers/base/check.h"

namespace kvkeep::client::wire {
namespace {

static_assert(ChunkFrame::kHit == static_cast<uint32_t>(v1::CHUNK_STATUS_HIT));
static_assert(ChunkFrame::kMiss == static_cast<uint32_t>(v1::CHUNK_STATUS_MISS));
static_assert(ChunkFrame::kCorrupt == static_cast<uint32_t>(v1::CHUNK_STATUS_CORRUPT));
static_assert(ChunkFrame::kBusy == static_cast<uint32_t>(v1::CHUNK_STATUS_BUSY));

constexpr uint32_t kPayloadField = 15;
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

// Reads the bytes of a message that lies in several slices.
class Cursor {
 public:
  explicit Cursor(const std::vector<grpc::Slice>& slices) : slices_(slices) {
    for (const grpc::Slice& slice : slices) left_ += slice.size();
    SkipEmpty();
  }
  uint64_t left() const { return left_; }

  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (left_ == 0) return false;
      const uint8_t byte = slices_[slice_].begin()[at_];
      Advance(1);
      *value |= uint64_t{byte & 0x7Fu} << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  // Calls `run` for the next `size` bytes, slice by slice. Returns false if there are fewer.
  template <typename F>
  bool Take(uint64_t size, F&& run) {
    if (size > left_) return false;
    while (size > 0) {
      const size_t step = std::min<uint64_t>(size, slices_[slice_].size() - at_);
      run(std::span(reinterpret_cast<const std::byte*>(slices_[slice_].begin()) + at_, step));
      Advance(step);
      size -= step;
    }
    return true;
  }
  bool Skip(uint64_t size) {
    return Take(size, [](std::span<const std::byte>) {});
  }
  bool Fixed64(uint64_t* value) {
    auto* to = reinterpret_cast<std::byte*>(value);
    return Take(sizeof(*value), [&to](std::span<const std::byte> run) {
      std::memcpy(to, run.data(), run.size());
      to += run.size();
    });
  }

 private:
  void Advance(size_t bytes) {
    at_ += bytes;
    left_ -= bytes;
    SkipEmpty();
  }
  void SkipEmpty() {
    while (slice_ < slices_.size() && at_ == slices_[slice_].size()) {
      ++slice_;
      at_ = 0;
    }
  }

  const std::vector<grpc::Slice>& slices_;
  size_t slice_ = 0;
  size_t at_ = 0;
  uint64_t left_ = 0;
};

bool TakeBytesField(Cursor& cursor, uint32_t field, GetFrameView* frame) {
  uint64_t size = 0;
  if (!cursor.Varint(&size) || size > cursor.left()) return false;
  switch (field) {
    case 7: {  // packed
      if (size % sizeof(uint64_t) != 0) return false;
      for (uint64_t i = 0; i < size / sizeof(uint64_t); ++i) {
        if (!cursor.Fixed64(&frame->piece_checksums.emplace_back())) return false;
      }
      return true;
    }
    case 8:
      frame->metadata.clear();
      return cursor.Take(size, [frame](std::span<const std::byte> run) {
        frame->metadata.append(reinterpret_cast<const char*>(run.data()), run.size());
      });
    case kPayloadField:
      frame->payload.clear();
      frame->payload_size = size;
      return cursor.Take(
          size, [frame](std::span<const std::byte> run) { frame->payload.push_back(run); });
    default:
      return cursor.Skip(size);
  }
}

void SetVarintField(uint32_t field, uint64_t value, GetFrameView* frame) {
  switch (field) {
    case 1:
      frame->key_index = static_cast<uint32_t>(value);
      break;
    case 2:
      frame->part_index = static_cast<uint32_t>(value);
      break;
    case 3:
      frame->status = static_cast<uint32_t>(value);
      break;
    case 4:
      frame->offset = value;
      break;
    case 5:
      frame->payload_bytes = value;
      break;
    case 6:
      frame->last = value != 0;
      break;
    default:
      break;
  }
}

bool ParseField(Cursor& cursor, GetFrameView* frame) {
  uint64_t tag = 0;
  if (!cursor.Varint(&tag) || tag >> 3 == 0 || tag > UINT32_MAX) return false;
  const auto field = static_cast<uint32_t>(tag >> 3);
  uint64_t value = 0;
  switch (tag & 7) {
    case kVarint:
      if (!cursor.Varint(&value)) return false;
      SetVarintField(field, value, frame);
      return true;
    case kFixed64:
      if (!cursor.Fixed64(&value)) return false;
      if (field == 7) frame->piece_checksums.push_back(value);  // not packed: legal too
      return true;
    case kLengthDelimited:
      return TakeBytesField(cursor, field, frame);
    case kFixed32:
      return cursor.Skip(4);
    default:
      return false;
  }
}

}  // namespace

grpc::ByteBuffer AppendPayload(const google::protobuf::MessageLite& head,
                               std::vector<grpc::Slice> payload) {
  std::string prefix = head.SerializeAsString();
  uint64_t size = 0;
  for (const grpc::Slice& slice : payload) size += slice.size();
  if (size > 0) {
    prefix.push_back(static_cast<char>(kPayloadField << 3 | kLengthDelimited));
    uint64_t rest = size;
    for (; rest >= 0x80; rest >>= 7) prefix.push_back(static_cast<char>(rest | 0x80));
    prefix.push_back(static_cast<char>(rest));
  }
  payload.insert(payload.begin(), grpc::Slice(prefix));
  return {payload.data(), payload.size()};
}

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

bool Parse(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message) {
  grpc::ByteBuffer copy(buffer);  // the reader wants it mutable; this references, it does not copy
  if (!copy.Valid()) return message->ParseFromString("");
  grpc::ProtoBufferReader reader(&copy);
  return message->ParseFromZeroCopyStream(&reader);
}

absl::StatusOr<GetFrameView> ParseGetFrame(const grpc::ByteBuffer& buffer) {
  GetFrameView frame;
  if (!buffer.Valid()) return frame;  // an empty message
  if (!buffer.Dump(&frame.slices).ok()) {
    return absl::InvalidArgumentError("GetFrame: cannot read the message's buffer");
  }
  Cursor cursor(frame.slices);
  while (cursor.left() > 0) {
    if (!ParseField(cursor, &frame)) {
      return absl::InvalidArgumentError("GetFrame: malformed message from the daemon");
    }
  }
  return frame;
}

}  // namespace kvkeep::client::wire
