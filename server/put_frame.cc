#include "server/put_frame.h"

#include <string>

namespace kvkeep {
namespace {

absl::Status Malformed(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("PutFrame: ", what, " is not valid protobuf"));
}

template <typename Message>
bool ParseHeader(const std::optional<std::string>& bytes, std::optional<Message>* header) {
  return !bytes.has_value() || header->emplace().ParseFromString(*bytes);
}

}  // namespace

absl::StatusOr<PutFrameView> ParsePutFrame(std::span<const WireRun> runs) {
  using Frame = v1::PutFrame;
  PutFrameView view;
  // A message field that comes twice is merged; joining the bytes and parsing them is the same.
  std::optional<std::string> stream, chunk;
  WireReader reader(runs);
  while (!reader.done()) {
    WireTag tag;
    bool ok = reader.ReadTag(&tag);
    if (!ok) return Malformed("a tag");
    if (tag.field == Frame::kStreamFieldNumber && tag.type == WireType::kBytes) {
      ok = reader.ReadBytes(stream ? &*stream : &stream.emplace());
    } else if (tag.field == Frame::kChunkFieldNumber && tag.type == WireType::kBytes) {
      ok = reader.ReadBytes(chunk ? &*chunk : &chunk.emplace());
    } else if (tag.field == Frame::kAbortFieldNumber && tag.type == WireType::kVarint) {
      uint64_t value = 0;
      ok = reader.ReadVarint(&value);
      view.abort = value != 0;
    } else if (tag.field == Frame::kPayloadFieldNumber && tag.type == WireType::kBytes) {
      view.payload.clear();  // the last one counts
      ok = reader.ReadRuns(&view.payload, &view.payload_bytes);
    } else {
      ok = reader.Skip(tag);
    }
    if (!ok) return Malformed("a field");
  }
  if (!ParseHeader(stream, &view.stream)) return Malformed("stream");
  if (!ParseHeader(chunk, &view.chunk)) return Malformed("chunk");
  return view;
}

}  // namespace kvkeep
