// Checks of images: pure functions over bytes that may hold anything.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/image.h"
#include "tiers/index/record.h"

namespace kvkeep {

// The space of a device in which images may lie.
struct DeviceSpace {
  Uuid device;
  BlockCount blocks;
  BlockCount file_blocks;  // a run stays inside one data file, whose first block is its label
};

// DataLoss when an image cannot lie there: outside, over a label, across two data files, over
// itself.
absl::Status CheckExtents(const ExtentList& extents, const DeviceSpace& space);

// Returns the header of an image that begins at `first`. DataLoss unless it is one of ours, whole,
// with the MAC of this store, made for this very place.
absl::StatusOr<ImageHeader> DecodeHeaderAt(ConstHeaderPage page, const MacKey& mac_key,
                                           BlockNumber first, const DeviceSpace& space);

// Returns whether chunk and placement are the record's: the daemon confirms this after a power cut.
bool IsOfPlacement(const ImageHeader& header, const IndexRecord& record);

// Checks that it is the image that a record names. DataLoss says in what they differ.
absl::Status CheckAgainstRecord(const ImageHeader& header, const Digest128& root,
                                const IndexRecord& record);

// Returns the record of the image with this header.
IndexRecord RecordOf(const ImageHeader& header, const Digest128& root);

// Checks the bytes behind the header page as they come, in runs of any size.
class PayloadCheck {
 public:
  explicit PayloadCheck(const ImageIdentity& identity) : identity_(identity) {
    KVKEEP_CHECK(identity.piece_checksums.size() == identity.shape.pieces());
  }

  void Append(std::span<const std::byte> bytes);
  // Results after the last byte: pieces that do not match, and whether the metadata tail does not.
  const std::vector<size_t>& bad_pieces() const { return bad_pieces_; }
  bool tail_is_bad() const { return tail_is_bad_; }

 private:
  void EndPiece();

  const ImageIdentity& identity_;
  uint64_t at_ = kHeaderBytes;  // in the image
  size_t piece_ = 0;
  Xxh3Stream stream_;
  std::vector<size_t> bad_pieces_;
  bool tail_is_bad_ = false;
};

}  // namespace kvkeep
