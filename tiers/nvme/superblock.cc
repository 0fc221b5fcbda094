#include "tiers/nvme/superblock.h"

#include <absl/strings/str_cat.h>

#include <cstring>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/hmac.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"
#include "tiers/nvme/geometry.h"

namespace kvkeep {
namespace {

constexpr absl::string_view kSuperblockMagic = "KVKSUPER";
constexpr absl::string_view kLabelMagic = "KVKLABEL";
constexpr absl::string_view kFingerprintContext = "kvkeep device superblock: MAC key fingerprint";

constexpr size_t kVersionAt = 8;
constexpr size_t kChecksumAt = kBlockBytes - sizeof(uint64_t);

constexpr size_t kStoreAt = 16;
constexpr size_t kDeviceAt = 32;
constexpr size_t kCapacityAt = 48;
constexpr size_t kFileBytesAt = 56;
constexpr size_t kMacKeyAt = 64;

constexpr size_t kLabelNumberAt = 12;
constexpr size_t kLabelDeviceAt = 16;
static_assert(kChecksumAt == 4088 && kMacKeyAt + sizeof(MacKeyFingerprint) == 80);

Block StartBlock(absl::string_view magic) {
  Block block{};
  std::memcpy(block.data(), magic.data(), magic.size());
  StoreAt<uint32_t>(block.data() + kVersionAt, kDeviceFormatVersion);
  return block;
}

void FinishBlock(Block& block) {
  StoreAt<uint64_t>(block.data() + kChecksumAt, Xxh3(std::span(block).first(kChecksumAt)));
}

absl::Status CheckBlock(std::span<const std::byte> block, absl::string_view magic) {
  if (block.size() != kBlockBytes) {
    return absl::DataLossError(absl::StrCat("is ", block.size(), " bytes, expected ", kBlockBytes));
  }
  if (std::memcmp(block.data(), magic.data(), magic.size()) != 0) {
    return absl::DataLossError("is damaged (no magic)");
  }
  if (LoadAt<uint64_t>(block.data() + kChecksumAt) != Xxh3(block.first(kChecksumAt))) {
    return absl::DataLossError("is damaged (checksum does not match)");
  }
  if (const auto version = LoadAt<uint32_t>(block.data() + kVersionAt);
      version != kDeviceFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("has format version ", version, ", this build reads ", kDeviceFormatVersion,
                     "; start the kvkeep that wrote it, or empty the directory"));
  }
  return absl::OkStatus();
}

Uuid LoadUuid(const std::byte* from) {
  Uuid uuid;
  std::memcpy(uuid.bytes.data(), from, Uuid::kSize);
  return uuid;
}

}  // namespace

MacKeyFingerprint Fingerprint(const MacKey& key) {
  std::array<std::byte, kHmacSha256Bytes> mac;
  HmacSha256(key, AsBytes(kFingerprintContext), mac);
  MacKeyFingerprint fingerprint;
  std::memcpy(fingerprint.data(), mac.data(), fingerprint.size());
  return fingerprint;
}

Block EncodeSuperblock(const Superblock& superblock) {
  Block block = StartBlock(kSuperblockMagic);
  std::byte* const at = block.data();
  std::memcpy(at + kStoreAt, superblock.store.bytes.data(), Uuid::kSize);
  std::memcpy(at + kDeviceAt, superblock.device.bytes.data(), Uuid::kSize);
  StoreAt<uint64_t>(at + kCapacityAt, superblock.capacity_bytes);
  StoreAt<uint64_t>(at + kFileBytesAt, superblock.file_bytes);
  StoreAt<MacKeyFingerprint>(at + kMacKeyAt, superblock.mac_key);
  FinishBlock(block);
  return block;
}

absl::StatusOr<Superblock> DecodeSuperblock(std::span<const std::byte> block) {
  KVKEEP_RETURN_IF_ERROR(CheckBlock(block, kSuperblockMagic));
  const std::byte* const at = block.data();
  Superblock superblock;
  superblock.store = LoadUuid(at + kStoreAt);
  superblock.device = LoadUuid(at + kDeviceAt);
  superblock.capacity_bytes = LoadAt<uint64_t>(at + kCapacityAt);
  superblock.file_bytes = LoadAt<uint64_t>(at + kFileBytesAt);
  superblock.mac_key = LoadAt<MacKeyFingerprint>(at + kMacKeyAt);
  const uint64_t file_bytes = superblock.file_bytes;
  const bool possible =
      !superblock.device.is_zero() && superblock.capacity_bytes >= kMinDeviceCapacityBytes &&
      file_bytes >= kMinDataFileBytes && file_bytes <= kMaxDataFileBytes &&
      file_bytes % kBlockBytes == 0 && superblock.capacity_bytes / file_bytes <= kMaxDataFiles;
  if (!possible) return absl::DataLossError("is damaged (impossible geometry)");
  return superblock;
}

Block EncodeLabel(const DataFileLabel& label) {
  Block block = StartBlock(kLabelMagic);
  StoreAt<uint32_t>(block.data() + kLabelNumberAt, label.number);
  std::memcpy(block.data() + kLabelDeviceAt, label.device.bytes.data(), Uuid::kSize);
  FinishBlock(block);
  return block;
}

absl::StatusOr<DataFileLabel> DecodeLabel(std::span<const std::byte> block) {
  KVKEEP_RETURN_IF_ERROR(CheckBlock(block, kLabelMagic));
  return DataFileLabel{.device = LoadUuid(block.data() + kLabelDeviceAt),
                       .number = LoadAt<uint32_t>(block.data() + kLabelNumberAt)};
}

}  // namespace kvkeep
