#include "server/grpc/get_frame.h"

#include "server/grpc/wire.h"
#include "tiers/base/bytes.h"

namespace kvkeep {

std::string EncodeGetFrameHeader(const GetFrameHeader& header) {
  using Frame = v1::GetFrame;
  std::string out;
  out.reserve(64 + 8 * header.piece_checksums.size() + header.metadata.size());
  AppendVarintField(Frame::kKeyIndexFieldNumber, header.key_index, &out);
  AppendVarintField(Frame::kPartIndexFieldNumber, header.part_index, &out);
  AppendVarintField(Frame::kStatusFieldNumber, static_cast<uint64_t>(header.status), &out);
  AppendVarintField(Frame::kOffsetFieldNumber, header.offset, &out);
  AppendVarintField(Frame::kPayloadBytesFieldNumber, header.chunk_payload_bytes, &out);
  AppendVarintField(Frame::kLastFieldNumber, header.last ? 1 : 0, &out);
  AppendPackedFixed64(Frame::kPieceChecksumsFieldNumber, header.piece_checksums, &out);
  AppendBytesField(Frame::kMetadataFieldNumber, AsBytes(header.metadata), &out);
  if (header.frame_payload_bytes > 0) {
    AppendTag(Frame::kPayloadFieldNumber, WireType::kBytes, &out);
    AppendVarint(header.frame_payload_bytes, &out);
  }
  return out;
}

}  // namespace kvkeep
