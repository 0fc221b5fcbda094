#include "tiers/index/record.h"

#include <absl/strings/str_cat.h>

#include <cstring>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr uint8_t kRecordVersion = 1;
constexpr uint8_t kStableMarkVersion = 1, kCleanMarkVersion = 2;
constexpr size_t kStableMarkBytes = 1 + Uuid::kSize + sizeof(uint64_t);

constexpr size_t kKeyAt = NamespaceDigest::kSize;
constexpr size_t kPartAt = kKeyAt + ChunkKey::kSize;
constexpr size_t kRecordKeyBytes = kPartAt + sizeof(uint32_t);

constexpr size_t kFlagsAt = 1;
constexpr size_t kExtentCountAt = 2;
constexpr size_t kPayloadBytesAt = 4;
constexpr size_t kTailBytesAt = 8;
constexpr size_t kIncarnationAt = 12;
constexpr size_t kGenerationAt = 20;
constexpr size_t kSequenceAt = 28;
constexpr size_t kCreatedAt = 36;
constexpr size_t kRootAt = 44;
constexpr size_t kExtentsAt = 60;
constexpr size_t kExtentBytes = 16;
// The layout documented in the header file; changing it means a new record version.
static_assert(kRecordKeyBytes == 52 && kExtentsAt == kRootAt + sizeof(Digest128));

absl::StatusOr<ChunkId> DecodeKey(absl::string_view key) {
  if (key.size() != kRecordKeyBytes) {
    return absl::DataLossError(
        absl::StrCat("index record: key of ", key.size(), " bytes, expected ", kRecordKeyBytes));
  }
  ChunkId id;
  std::memcpy(id.ns.bytes.data(), key.data(), NamespaceDigest::kSize);
  std::memcpy(id.key.bytes.data(), key.data() + kKeyAt, ChunkKey::kSize);
  uint32_t part = 0;
  for (size_t i = kPartAt; i < kRecordKeyBytes; ++i)
    part = part << 8 | static_cast<uint8_t>(key[i]);
  id.part = PartId(part);
  return id;
}

absl::Status Damaged(const ChunkId& id, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("index record of ", id.ToString(), ": impossible ", what));
}

}  // namespace

std::string EncodeStableMark(const StableMark& mark) {
  std::string value(kStableMarkBytes, '\0');
  std::byte* const at = reinterpret_cast<std::byte*>(value.data());
  StoreAt<uint8_t>(at, mark.clean ? kCleanMarkVersion : kStableMarkVersion);
  std::memcpy(at + 1, mark.boot_id.bytes.data(), Uuid::kSize);
  StoreAt<uint64_t>(at + 1 + Uuid::kSize, mark.sequence.value());
  return value;
}

absl::StatusOr<StableMark> DecodeStableMark(absl::string_view value) {
  const std::byte* const at = AsBytes(value).data();
  const bool whole = value.size() == kStableMarkBytes;
  StableMark mark{.clean = whole && LoadAt<uint8_t>(at) == kCleanMarkVersion};
  if (!whole || (!mark.clean && LoadAt<uint8_t>(at) != kStableMarkVersion)) {
    return absl::DataLossError("stable mark is damaged");
  }
  std::memcpy(mark.boot_id.bytes.data(), at + 1, Uuid::kSize);
  mark.sequence = CommitSequence(LoadAt<uint64_t>(at + 1 + Uuid::kSize));
  return mark;
}

std::string EncodeRecordKey(const ChunkId& id) {
  std::string key;
  key.reserve(kRecordKeyBytes);
  key.append(id.ns.view().data(), NamespaceDigest::kSize);
  key.append(id.key.view().data(), ChunkKey::kSize);
  for (int shift = 24; shift >= 0; shift -= 8) {
    key.push_back(static_cast<char>(id.part.value() >> shift & 0xff));
  }
  return key;
}

std::string EncodeRecordValue(const IndexRecord& record) {
  KVKEEP_CHECK(ValidateShape(record.shape).ok());
  KVKEEP_CHECK(WhyBadExtents(record.extents, record.shape.blocks()) == nullptr);

  std::string value(kExtentsAt + record.extents.size() * kExtentBytes, '\0');
  std::byte* const at = reinterpret_cast<std::byte*>(value.data());
  StoreAt<uint8_t>(at, kRecordVersion);
  StoreAt<uint16_t>(at + kExtentCountAt, static_cast<uint16_t>(record.extents.size()));
  StoreAt<uint32_t>(at + kPayloadBytesAt, record.shape.payload_bytes);
  StoreAt<uint32_t>(at + kTailBytesAt, record.shape.tail_bytes);
  StoreAt<uint64_t>(at + kIncarnationAt, record.incarnation.value());
  StoreAt<uint64_t>(at + kGenerationAt, record.generation.value());
  StoreAt<uint64_t>(at + kSequenceAt, record.sequence.value());
  StoreAt<uint64_t>(at + kCreatedAt, record.created_unix_us);
  StoreAt<Digest128>(at + kRootAt, record.root);
  for (size_t i = 0; i < record.extents.size(); ++i) {
    std::byte* const extent = at + kExtentsAt + i * kExtentBytes;
    StoreAt<uint64_t>(extent, record.extents[i].first.value());
    StoreAt<uint64_t>(extent + 8, record.extents[i].count.value());
  }
  return value;
}

absl::StatusOr<IndexRecord> DecodeRecord(absl::string_view key, absl::string_view value) {
  IndexRecord record;
  absl::StatusOr<ChunkId> id = DecodeKey(key);
  if (!id.ok()) return id.status();
  record.id = *id;

  const std::byte* const at = AsBytes(value).data();
  if (value.empty()) return Damaged(record.id, "length 0");
  if (const uint8_t version = LoadAt<uint8_t>(at); version != kRecordVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("index record version ", version, ", this build reads ", kRecordVersion));
  }
  // The exact length is checked before anything behind the fixed part is read.
  if (value.size() < kExtentsAt) return Damaged(record.id, absl::StrCat("length ", value.size()));
  const size_t extents = LoadAt<uint16_t>(at + kExtentCountAt);
  if (extents == 0 || extents > kMaxExtents) return Damaged(record.id, "number of extents");
  if (value.size() != kExtentsAt + extents * kExtentBytes) {
    return Damaged(record.id, absl::StrCat("length ", value.size(), " for its extents"));
  }
  if (LoadAt<uint8_t>(at + kFlagsAt) != 0) return Damaged(record.id, "flags");

  record.shape.payload_bytes = LoadAt<uint32_t>(at + kPayloadBytesAt);
  record.shape.tail_bytes = LoadAt<uint32_t>(at + kTailBytesAt);
  record.incarnation = Incarnation(LoadAt<uint64_t>(at + kIncarnationAt));
  record.generation = Generation(LoadAt<uint64_t>(at + kGenerationAt));
  record.sequence = CommitSequence(LoadAt<uint64_t>(at + kSequenceAt));
  record.created_unix_us = LoadAt<uint64_t>(at + kCreatedAt);
  record.root = LoadAt<Digest128>(at + kRootAt);
  for (size_t i = 0; i < extents; ++i) {
    const std::byte* const extent = at + kExtentsAt + i * kExtentBytes;
    record.extents.push_back({.first = BlockNumber(LoadAt<uint64_t>(extent)),
                              .count = BlockCount(LoadAt<uint64_t>(extent + 8))});
  }
  if (const absl::Status shape = ValidateShape(record.shape); !shape.ok()) {
    return Damaged(record.id, shape.message());
  }
  if (const char* why = WhyBadExtents(record.extents, record.shape.blocks())) {
    return Damaged(record.id, why);
  }
  return record;
}

}  // namespace kvkeep
