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
  const bool of_it = header.identity.id == expected.id || Planted(Canary::kIdentityUnchecked);
  if (!of_it || header.placement.tier != Tier::kG4 ||
      header.placement.place != source_.place()) {
    return absl::DataLossError("the image beyond the node is of another chunk or place");
  }
  // Checksums of plain bytes need no key, so anybody who can write there could make them.
  if (!header.encryption.has_value()) {
    return absl::DataLossError("the image beyond the node is not encrypted");
  }
  if (header.identity.shape == expected.shape) return absl::OkStatus();
  // The image may be whole, but it does not fit into the space that was taken for it.
  return absl::UnavailableError("the image beyond the node is another one than was found");
}

void RemoteTier::NoteBad(const ChunkId& id) {
  ++counters.bad_images;
  removals.Add(id, RemoteRemovals::Why::kBad);
}

ImagePlacement RemoteTier::PlacementOf(const Chunk& chunk) const {
  return {.tier = Tier::kG4,
          .place = source_.place(),
          .incarnation = Incarnation(0),
          .generation = Generation(0),
          .extents = {Extent{BlockNumber(0), chunk.shape.blocks()}}};
}

}  // namespace kvkeep::store_internal
