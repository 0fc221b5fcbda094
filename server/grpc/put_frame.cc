#include "server/grpc/put_frame.h"

#include <string>

namespace kvkeep {
namespace {

absl::Status Malformed(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("PutFrame: ", what, " is not valid protobuf"));
}

// A message field that comes twice is merged. Each occurrence must parse by itself: two parts that
// only parse together are malformed.
template <typename Message>
bool MergeHeader(const std::string& bytes, std::optional<Message>* header) {
  if (!header->has_value()) header->emplace();
  return (*header)->MergeFromString(bytes);
}

}  // namespace

absl::StatusOr<PutFrameView> ParsePutFrame(std::span<const WireRun> runs) {
  using Frame = v1::PutFrame;
  PutFrameView view;
  std::string header;
  WireReader reader(runs);
  while (!reader.done()) {
    WireTag tag;
    bool ok = reader.ReadTag(&tag);
    if (!ok) return Malformed("a tag");
    if (tag.field == Frame::kStreamFieldNumber && tag.type == WireType::kBytes) {
      header.clear();
      ok = reader.ReadBytes(&header);
      if (ok && !MergeHeader(header, &view.stream)) return Malformed("stream");
    } else if (tag.field == Frame::kChunkFieldNumber && tag.type == WireType::kBytes) {
      header.clear();
      ok = reader.ReadBytes(&header);
      if (ok && !MergeHeader(header, &view.chunk)) return Malformed("chunk");
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
  return view;
}

}  // namespace kvkeep
