// The two small structures that make a directory a kvkeep device. Format version 1, little-endian.
//
// superblock (a file of one block)           label (block 0 of every data file)
//      0   8  magic "KVKSUPER"                    0   8  magic "KVKLABEL"
//      8   4  format version                      8   4  format version
//     12   4  zero                               12   4  number of the file
//     16  16  store UUID                         16  16  device UUID
//     32  16  device UUID                        32      zeros
//     48   8  capacity_bytes                   4088   8  XXH3-64 of bytes 0..4088
//     56   8  file_bytes
//     64  16  fingerprint of the MAC key
//     80      zeros
//   4088   8  XXH3-64 of bytes 0..4088
//
// Magic, version and checksum stay where they are in every later version, so that a damaged block
// (DataLoss) can be told from one of another version (FailedPrecondition). There is one superblock,
// replaced as a whole (device_directory.h). If it or a label is damaged, the device does not open,
// and fsck cannot make another: empty the directory.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <span>

#include "tiers/base/image.h"
#include "tiers/base/key.h"
#include "tiers/base/units.h"

namespace kvkeep {

inline constexpr uint32_t kDeviceFormatVersion = 1;

using Block = std::array<std::byte, kBlockBytes>;
// Tells whether two MAC keys are the same without giving the key away.
using MacKeyFingerprint = std::array<std::byte, 16>;

struct Superblock {
  Uuid store;
  Uuid device;
  uint64_t capacity_bytes = 0;
  uint64_t file_bytes = 0;
  MacKeyFingerprint mac_key{};

  bool operator==(const Superblock&) const = default;
};

struct DataFileLabel {
  Uuid device;
  uint32_t number = 0;

  bool operator==(const DataFileLabel&) const = default;
};

MacKeyFingerprint Fingerprint(const MacKey& key);

Block EncodeSuperblock(const Superblock& superblock);
// A superblock that decodes has a geometry within the limits of geometry.h.
absl::StatusOr<Superblock> DecodeSuperblock(std::span<const std::byte> block);

Block EncodeLabel(const DataFileLabel& label);
absl::StatusOr<DataFileLabel> DecodeLabel(std::span<const std::byte> block);

}  // namespace kvkeep
