// IndexRecord: the index's record of one chunk on a device. Format version 1.
//
// clang-format off
//   key    namespace digest (16) + key (32) + part (4, big-endian: parts of a key are adjacent)
//   value  version u8 = 1, flags u8 = 0, extent count u16, payload bytes u32, tail bytes u32,
//          incarnation u64, generation u64, sequence u64, created us u64, root (16),
//          extents {first u64, blocks u64} x count; little-endian
// clang-format on
//
// `sequence` counts the adds committed on this device, for ever: records above the stable mark may
// have lost their data in a power cut and are trusted only once their header has been read.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <cstdint>
#include <string>

#include "tiers/base/checksum.h"
#include "tiers/base/image.h"
#include "tiers/base/key.h"

namespace kvkeep {

using CommitSequence = StrongInt<struct CommitSequenceTag, uint64_t>;

struct IndexRecord {
  ChunkId id;
  ImageShape shape;
  Incarnation incarnation;
  Generation generation;
  CommitSequence sequence;
  uint64_t created_unix_us = 0;
  Digest128 root;
  ExtentList extents;

  bool operator==(const IndexRecord&) const = default;
};

// Says that everything up to `sequence` was on stable storage during the machine's boot `boot_id`.
// Clean: neither adds nor removes were committed since, so a loss of power takes nothing back.
struct StableMark {
  Uuid boot_id;
  CommitSequence sequence;
  bool clean = false;

  bool operator==(const StableMark&) const = default;
};

// 25 bytes: version u8 = 1, or 2 where it is clean, boot id (16), sequence u64; little-endian.
std::string EncodeStableMark(const StableMark& mark);
absl::StatusOr<StableMark> DecodeStableMark(absl::string_view value);  // DataLoss when damaged

std::string EncodeRecordKey(const ChunkId& id);
std::string EncodeRecordValue(const IndexRecord& record);
// DataLoss when damaged; FailedPrecondition for another version.
absl::StatusOr<IndexRecord> DecodeRecord(absl::string_view key, absl::string_view value);

}  // namespace kvkeep
