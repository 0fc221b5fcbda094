#include "tiers/store/remote_tier.h"

#include <memory>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/store/promotion.h"

namespace kvkeep::store_internal {
namespace {

// For waiters, an image that is gone is out of reach, as if the source did not answer.
absl::Status AwayIfGone(absl::Status status) {
  if (!absl::IsNotFound(status)) return status;
  return absl::UnavailableError("the image beyond the node is gone");
}

// Returns whether a peer made the page. Pages of images that are kept beyond the node name G4.
bool IsOfPeer(const ImageHeader& header) { return header.placement.tier == Tier::kG2; }

}  // namespace

void RemoteTier::Read(ImageRead read) {
  ReadSink* const sink = read.sink;
  Promotion* const promotion = read.promotion;
  source_.Read({.id = read.id,
                .shape = read.shape,
                .header = read.header,
                .memory = read.to,
                .header_done =
                    [sink, promotion, page = read.header](absl::Status status) {
                      sink->OnHeaderRead(*promotion, page, AwayIfGone(std::move(status)));
                    },
                .piece_done =
                    [sink, promotion](size_t piece, uint64_t bytes, absl::Status status) {
                      sink->OnPieceRead(*promotion, piece, bytes, AwayIfGone(std::move(status)));
                    },
                .deadline = read.deadline,
                .age = [promotion](std::chrono::seconds age) { promotion->NoteAge(age); }});
}

void RemoteTier::Write(ImageWrite write) {
  const uint64_t bytes = write.shape.blocks().value() * kBlockBytes;
  source_.Write({.id = write.id,
                 .shape = write.shape,
                 .header = write.header,
                 .memory = std::move(write.from),
                 .done =
                     [done = std::move(write.done), bytes](absl::Status status) {
                       done(bytes, std::move(status));
                     },
                 .replace = write.replace,
                 .epoch = write.epoch});
}

// Any image under the name will do, so incarnation and generation are not compared.
absl::Status RemoteTier::CheckHeader(const ImageHeader& header,
                                     const ExpectedHeader& expected) const {
  const bool of_it = header.identity.id == expected.id || Planted(Canary::kIdentityUnchecked) ||
                     (IsOfPeer(header) && Planted(Canary::kPeerBelieved));
  const bool of_tier = header.placement.tier == Tier::kG4 || IsOfPeer(header);
  if (!of_it || !of_tier || header.placement.place != source_.place()) {
    return absl::DataLossError("the image beyond the node is of another chunk or place");
  }
  // Checksums of plain bytes need no key, so anybody who can write to a bucket could make them. A
  // peer is known by its certificate, and sends plain images alone.
  if (header.encryption.has_value() == IsOfPeer(header)) {
    return absl::DataLossError("the image beyond the node is not encrypted as it should be");
  }
  if (header.identity.shape == expected.shape) return absl::OkStatus();
  // The image may be whole, but it does not fit into the space that was taken for it.
  return absl::UnavailableError("the image beyond the node is another one than was found");
}

// A peer's bad image says nothing of the one that is kept.
void RemoteTier::NoteBad(const ChunkId& id, const ImageHeader* header) {
  ++counters.bad_images;
  if (header != nullptr && IsOfPeer(*header)) return source_.NoteBad(id);
  if (keeps()) removals.Add(id, RemoteRemovals::Why::kBad);
}

ImagePlacement RemoteTier::PlacementOf(const Chunk& chunk) const {
  return {.tier = Tier::kG4,
          .place = source_.place(),
          .incarnation = Incarnation(0),
          .generation = Generation(0),
          .extents = {Extent{BlockNumber(0), chunk.shape.blocks()}}};
}

}  // namespace kvkeep::store_internal
