// Messages of peer.proto to the types that the rest uses, and back. Everything that another node
// wrote is checked here. Errors are InvalidArgument and name the field and its limit.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "kvkeep/v1/peer.pb.h"
#include "server/grpc/wire.h"
#include "tiers/remote/offered_chunk.h"
#include "tiers/remote/peer_source.h"

namespace kvkeep {

// Versions of the protocol between nodes that this one knows.
inline constexpr uint32_t kPeerVersionMin = 1, kPeerVersionMax = 1;
// Returns the version that a node with these answers a Hello with: the highest that both know.
// FailedPrecondition: there is none.
absl::StatusOr<uint32_t> ChooseVersion(const v1::PeerHelloRequest& hello,
                                       uint32_t own_min = kPeerVersionMin,
                                       uint32_t own_max = kPeerVersionMax);

inline constexpr size_t kMostChunksAFind = 4096;  // and an Offer
inline constexpr size_t kFetchFramePieces = 2;
inline constexpr uint64_t kMaxFetchFrameBytes = kFetchFramePieces * kPieceBytes + kBlockBytes;

v1::FindRequest ToFindRequest(const std::vector<ChunkId>& ids);
absl::StatusOr<std::vector<ChunkId>> ParseFindRequest(const v1::FindRequest& request);
void ToFindResponse(const PeerSource::Found& found, v1::FindResponse* response);
// `asked`: chunks that the question had.
absl::StatusOr<PeerSource::Found> ParseFindResponse(const v1::FindResponse& response, size_t asked);

v1::OfferRequest ToOfferRequest(const std::vector<OfferedChunk>& chunks);
absl::StatusOr<std::vector<OfferedChunk>> ParseOfferRequest(const v1::OfferRequest& request);
void ToOfferResponse(const OfferAnswer& answer, v1::OfferResponse* response);
absl::StatusOr<OfferAnswer> ParseOfferResponse(const v1::OfferResponse& response, size_t offered);

// An image that another node asks for.
struct WantedImage {
  ChunkId id;
  ImageShape shape;
};
v1::FetchRequest ToFetchRequest(const ChunkId& id, const ImageShape& shape);
absl::StatusOr<WantedImage> ParseFetchRequest(const v1::FetchRequest& request);

// A FetchFrame. Encoded by hand, like a GetFrame (server/grpc/get_frame.h), so that the image's
// bytes are not copied.
struct FetchFrameHead {
  std::string header;  // empty, or the header page
  uint64_t offset = 0;
  uint64_t image_bytes = 0;  // that follow
};
std::string EncodeFetchFrameHead(const FetchFrameHead& head);
struct ReceivedFetchFrame {
  std::string header;
  uint64_t offset = 0;
  std::vector<WireRun> image;  // in the memory of the message
  uint64_t image_bytes = 0;
};
absl::StatusOr<ReceivedFetchFrame> ParseFetchFrame(std::span<const WireRun> message);

// Returns the status of a call to a peer as the rest of kvkeep has it (PeerSource): a call that was
// cancelled did not answer.
absl::Status FromPeer(const grpc::Status& status);

}  // namespace kvkeep
