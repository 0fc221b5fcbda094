#include "server/fleet/peer_wire.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>

#include "tiers/base/bytes.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

absl::Status Malformed() { return absl::InvalidArgumentError("the frame cannot be parsed"); }

}  // namespace

absl::StatusOr<uint32_t> ChooseVersion(const v1::PeerHelloRequest& hello, uint32_t own_min,
                                       uint32_t own_max) {
  const uint32_t version = std::min(hello.max_version(), own_max);
  if (version >= std::max(hello.min_version(), own_min)) return version;
  return absl::FailedPreconditionError(absl::StrCat(
      "min_version, max_version: this node knows versions ", own_min, " to ", own_max));
}

v1::FindRequest ToFindRequest(const std::vector<ChunkId>& ids) {
  v1::FindRequest request;
  request.set_namespace_id(std::string(ids.front().ns.view()));
  std::string& keys = *request.mutable_keys();
  keys.reserve(ids.size() * ChunkKey::kSize);
  for (const ChunkId& id : ids) {
    keys.append(id.key.view().data(), ChunkKey::kSize);
    request.add_parts(id.part.value());
  }
  return request;
}

// Returns the chunks that a FindRequest or OfferRequest names.
template <typename Request>
absl::StatusOr<std::vector<ChunkId>> ParseNamed(const Request& request) {
  if (request.namespace_id().size() != NamespaceDigest::kSize) {
    return absl::InvalidArgumentError("namespace_id: must have 16 bytes");
  }
  const size_t chunks = request.keys().size() / ChunkKey::kSize;
  if (chunks == 0 || chunks > kMostChunksAFind ||
      request.keys().size() != chunks * ChunkKey::kSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys: must have 32 bytes for each of 1 to ", kMostChunksAFind, " chunks"));
  }
  if (static_cast<size_t>(request.parts_size()) != chunks) {
    return absl::InvalidArgumentError("parts: must have one number for each key");
  }
  NamespaceDigest ns;
  std::memcpy(ns.bytes.data(), request.namespace_id().data(), ns.bytes.size());
  std::vector<ChunkId> ids(chunks);
  for (size_t i = 0; i < chunks; ++i) {
    ids[i].ns = ns;
    std::memcpy(ids[i].key.bytes.data(), request.keys().data() + i * ChunkKey::kSize,
                ChunkKey::kSize);
    ids[i].part = PartId(request.parts(static_cast<int>(i)));
  }
  return ids;
}

absl::StatusOr<std::vector<ChunkId>> ParseFindRequest(const v1::FindRequest& request) {
  return ParseNamed(request);
}

void ToFindResponse(const PeerSource::Found& found, v1::FindResponse* response) {
  for (const std::optional<PeerChunk>& chunk : found) {
    response->mutable_tiers()->push_back(chunk.has_value() ? static_cast<char>(chunk->tier) : '\0');
    response->add_payload_bytes(chunk.has_value() ? chunk->shape.payload_bytes : 0);
    response->add_tail_bytes(chunk.has_value() ? chunk->shape.tail_bytes : 0);
  }
}

absl::StatusOr<PeerSource::Found> ParseFindResponse(const v1::FindResponse& response,
                                                    size_t asked) {
  if (response.tiers().size() != asked ||
      static_cast<size_t>(response.payload_bytes_size()) != asked ||
      static_cast<size_t>(response.tail_bytes_size()) != asked) {
    return absl::InvalidArgumentError("the answer is of another number of chunks");
  }
  PeerSource::Found found(asked);
  for (size_t i = 0; i < asked; ++i) {
    const auto tier = static_cast<Tier>(response.tiers()[i]);
    if (tier == Tier::kNone) continue;
    if (tier != Tier::kG2 && tier != Tier::kG3) {
      return absl::InvalidArgumentError("tiers: must be 0, 2 or 3");
    }
    const PeerChunk chunk{.shape = {response.payload_bytes(static_cast<int>(i)),
                                    response.tail_bytes(static_cast<int>(i))},
                          .tier = tier};
    const absl::Status valid = ValidateShape(chunk.shape);
    if (!valid.ok()) return valid;
    found[i] = chunk;
  }
  return found;
}

v1::OfferRequest ToOfferRequest(const std::vector<OfferedChunk>& chunks) {
  v1::OfferRequest request;
  request.set_namespace_id(std::string(chunks.front().id.ns.view()));
  std::string& keys = *request.mutable_keys();
  keys.reserve(chunks.size() * ChunkKey::kSize);
  for (const OfferedChunk& chunk : chunks) {
    keys.append(chunk.id.key.view().data(), ChunkKey::kSize);
    request.add_parts(chunk.id.part.value());
    request.add_payload_bytes(chunk.shape.payload_bytes);
    request.add_tail_bytes(chunk.shape.tail_bytes);
  }
  return request;
}

absl::StatusOr<std::vector<OfferedChunk>> ParseOfferRequest(const v1::OfferRequest& request) {
  KVKEEP_ASSIGN_OR_RETURN(const std::vector<ChunkId> ids, ParseNamed(request));
  if (static_cast<size_t>(request.payload_bytes_size()) != ids.size() ||
      static_cast<size_t>(request.tail_bytes_size()) != ids.size()) {
    return absl::InvalidArgumentError(
        "payload_bytes, tail_bytes: must have one number for each key");
  }
  std::vector<OfferedChunk> chunks;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int at = static_cast<int>(i);
    chunks.push_back({ids[i], {request.payload_bytes(at), request.tail_bytes(at)}});
    KVKEEP_RETURN_IF_ERROR(ValidateShape(chunks.back().shape));
  }
  return chunks;
}

void ToOfferResponse(const OfferAnswer& answer, v1::OfferResponse* response) {
  for (const OfferEnd end : answer.chunks) {
    response->mutable_ends()->push_back(static_cast<char>(end));
  }
  response->set_full(answer.full);
}

absl::StatusOr<OfferAnswer> ParseOfferResponse(const v1::OfferResponse& response, size_t offered) {
  if (response.ends().size() != offered) {
    return absl::InvalidArgumentError("the answer is of another number of chunks");
  }
  OfferAnswer answer{.chunks = {}, .full = response.full()};
  for (const char byte : response.ends()) {
    const auto end = static_cast<uint8_t>(byte);
    if (end > static_cast<uint8_t>(OfferEnd::kTaken)) {
      return absl::InvalidArgumentError("ends: must be 0, 1 or 2");
    }
    answer.chunks.push_back(static_cast<OfferEnd>(end));
  }
  return answer;
}

v1::FetchRequest ToFetchRequest(const ChunkId& id, const ImageShape& shape) {
  v1::FetchRequest request;
  request.set_namespace_id(std::string(id.ns.view()));
  request.set_key(std::string(id.key.view()));
  request.set_part(id.part.value());
  request.set_payload_bytes(shape.payload_bytes);
  request.set_tail_bytes(shape.tail_bytes);
  return request;
}

absl::StatusOr<WantedImage> ParseFetchRequest(const v1::FetchRequest& request) {
  if (request.namespace_id().size() != NamespaceDigest::kSize) {
    return absl::InvalidArgumentError("namespace_id: must have 16 bytes");
  }
  if (request.key().size() != ChunkKey::kSize) {
    return absl::InvalidArgumentError("key: must have 32 bytes");
  }
  WantedImage wanted{.shape = {request.payload_bytes(), request.tail_bytes()}};
  const absl::Status valid = ValidateShape(wanted.shape);
  if (!valid.ok()) return valid;
  std::memcpy(wanted.id.ns.bytes.data(), request.namespace_id().data(), NamespaceDigest::kSize);
  std::memcpy(wanted.id.key.bytes.data(), request.key().data(), ChunkKey::kSize);
  wanted.id.part = PartId(request.part());
  return wanted;
}

std::string EncodeFetchFrameHead(const FetchFrameHead& head) {
  using Frame = v1::FetchFrame;
  std::string out;
  out.reserve(64 + head.header.size());
  AppendBytesField(Frame::kHeaderFieldNumber, AsBytes(head.header), &out);
  AppendVarintField(Frame::kOffsetFieldNumber, head.offset, &out);
  if (head.image_bytes > 0) {
    AppendTag(Frame::kImageFieldNumber, WireType::kBytes, &out);
    AppendVarint(head.image_bytes, &out);
  }
  return out;
}

absl::StatusOr<ReceivedFetchFrame> ParseFetchFrame(std::span<const WireRun> message) {
  using Frame = v1::FetchFrame;
  WireReader reader(message);
  ReceivedFetchFrame frame;
  while (!reader.done()) {
    WireTag tag;
    if (!reader.ReadTag(&tag)) return Malformed();
    bool read = true;
    if (tag.field == Frame::kHeaderFieldNumber && tag.type == WireType::kBytes) {
      read = frame.header.empty() && reader.ReadBytes(&frame.header);
    } else if (tag.field == Frame::kOffsetFieldNumber && tag.type == WireType::kVarint) {
      read = reader.ReadVarint(&frame.offset);
    } else if (tag.field == Frame::kImageFieldNumber && tag.type == WireType::kBytes) {
      read = frame.image.empty() && reader.ReadRuns(&frame.image, &frame.image_bytes);
    } else {
      read = reader.Skip(tag);
    }
    if (!read) return Malformed();
  }
  return frame;
}

absl::Status FromPeer(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = status.error_code() == grpc::StatusCode::CANCELLED
                        ? absl::StatusCode::kUnavailable
                        : static_cast<absl::StatusCode>(status.error_code());
  return absl::Status(code, status.error_message());
}

}  // namespace kvkeep
