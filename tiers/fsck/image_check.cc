#include "tiers/fsck/image_check.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

absl::Status CheckExtents(const ExtentList& extents, const DeviceSpace& space) {
  const uint64_t per_file = space.file_blocks.value();
  KVKEEP_CHECK(per_file > 0);
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    const uint64_t first = extent.first.value();
    const auto bad = [&](absl::string_view why) {
      return absl::DataLossError(absl::StrCat("extent ", i, " (block ", first, ", ",
                                              extent.count.value(), " blocks) ", why));
    };
    if (extent.count.value() == 0) return bad("is empty");
    if (first >= space.blocks.value() || extent.count.value() > space.blocks.value() - first) {
      return bad(absl::StrCat("lies beyond the device's ", space.blocks.value(), " blocks"));
    }
    if (first % per_file == 0) return bad("lies over a data file's label");
    if (first / per_file != (extent.end() - 1) / per_file) return bad("crosses two data files");
    for (size_t j = 0; j < i; ++j) {
      if (first < extents[j].end() && extents[j].first.value() < extent.end()) {
        return bad(absl::StrCat("overlaps extent ", j));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ImageHeader> DecodeHeaderAt(ConstHeaderPage page, const MacKey& mac_key,
                                           BlockNumber first, const DeviceSpace& space) {
  absl::StatusOr<ImageHeader> header = DecodeHeader(page, mac_key);
  if (!header.ok()) return header.status();
  const ImagePlacement& placement = header->placement;
  if (placement.tier != Tier::kG3 || placement.place != space.device) {
    return absl::DataLossError("image header: made for another device");
  }
  if (placement.extents[0].first != first) {
    return absl::DataLossError(absl::StrCat("image header: made for block ",
                                            placement.extents[0].first.value(), ", found at ",
                                            first.value()));
  }
  KVKEEP_RETURN_IF_ERROR(CheckExtents(placement.extents, space));
  return header;
}

namespace {

// Returns in what chunk and placement differ from the record's, or null.
const char* PlacementDiffersIn(const ImageHeader& header, const IndexRecord& record) {
  const ImagePlacement& placement = header.placement;
  if (header.identity.id != record.id) return "chunk";
  if (header.identity.shape != record.shape) return "size";
  if (placement.incarnation != record.incarnation || placement.generation != record.generation) {
    return "placement";
  }
  if (placement.extents != record.extents) return "list of extents";
  return nullptr;
}

}  // namespace

bool IsOfPlacement(const ImageHeader& header, const IndexRecord& record) {
  return PlacementDiffersIn(header, record) == nullptr;
}

absl::Status CheckAgainstRecord(const ImageHeader& header, const Digest128& root,
                                const IndexRecord& record) {
  const char* differs = PlacementDiffersIn(header, record);
  if (differs == nullptr && root != record.root) differs = "root checksum";
  if (differs == nullptr && header.identity.created_unix_us != record.created_unix_us) {
    differs = "creation time";
  }
  if (differs == nullptr) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("image header: of another ", differs,
                                          " than the index says; found is chunk ",
                                          header.identity.id.ToString()));
}

IndexRecord RecordOf(const ImageHeader& header, const Digest128& root) {
  return {.id = header.identity.id,
          .shape = header.identity.shape,
          .incarnation = header.placement.incarnation,
          .generation = header.placement.generation,
          .created_unix_us = header.identity.created_unix_us,
          .root = root,
          .extents = header.placement.extents};
}

void PayloadCheck::EndPiece() {
  KVKEEP_CHECK(piece_ < identity_.piece_checksums.size());
  if (stream_.Digest() != identity_.piece_checksums[piece_]) bad_pieces_.push_back(piece_);
  stream_ = Xxh3Stream();
  ++piece_;
}

void PayloadCheck::Append(std::span<const std::byte> bytes) {
  const ImageShape& shape = identity_.shape;
  const uint64_t payload_end = kHeaderBytes + uint64_t{shape.payload_bytes};
  const uint64_t tail_end = shape.tail_bytes > 0 ? shape.tail_offset() + shape.tail_bytes : 0;
  while (!bytes.empty()) {
    // Goes up to the next change of the bytes' meaning: the end of a piece, of the gap, of the
    // tail.
    uint64_t end = at_ + bytes.size();
    bool counted = true;
    if (at_ < payload_end) {
      end = kHeaderBytes + piece_ * kPieceBytes + PieceSize(shape.payload_bytes, piece_);
    } else if (shape.tail_bytes > 0 && at_ < shape.tail_offset()) {
      end = shape.tail_offset();
      counted = false;
    } else if (at_ < tail_end) {
      end = tail_end;
    } else {
      counted = false;
    }
    KVKEEP_CHECK(at_ < end);
    const size_t count = std::min<uint64_t>(end - at_, bytes.size());
    if (counted) stream_.Append(bytes.first(count));
    at_ += count;
    bytes = bytes.subspan(count);
    if (!counted || at_ != end) continue;
    if (at_ <= payload_end) {
      EndPiece();
    } else {
      tail_is_bad_ = stream_.Digest() != identity_.tail_checksum;
    }
  }
}

}  // namespace kvkeep
