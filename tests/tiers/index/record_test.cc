#include "tiers/index/record.h"

#include <catch2/catch.hpp>

#include "tests/tiers/index/records.h"
#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

constexpr size_t kFixedBytes = 60;

// Returns the value of `record` with `bytes` stored at `at`.
template <typename T>
std::string Patched(const IndexRecord& record, size_t at, T bytes) {
  std::string value = EncodeRecordValue(record);
  StoreAt<T>(reinterpret_cast<std::byte*>(value.data()) + at, bytes);
  return value;
}

absl::Status Decode(const IndexRecord& record, const std::string& value) {
  return DecodeRecord(EncodeRecordKey(record.id), value).status();
}

}  // namespace

TEST_CASE("a record comes back as it was written, whatever its shape and number of extents") {
  SeededRandom random(7);
  for (int i = 0; i < 2000; ++i) {
    const IndexRecord record = RandomRecord(random);
    const std::string value = EncodeRecordValue(record);
    CHECK(value.size() == kFixedBytes + 16 * record.extents.size());
    const absl::StatusOr<IndexRecord> decoded = DecodeRecord(EncodeRecordKey(record.id), value);
    REQUIRE(decoded.ok());
    CHECK(*decoded == record);
  }
}

TEST_CASE("the format of version 1 is frozen") {
  IndexRecord record;
  record.id.part = PartId(0x01020304);
  record.shape = {.payload_bytes = 1, .tail_bytes = 0};
  record.sequence = CommitSequence(0x55);
  record.extents = {{BlockNumber(9), BlockCount(2)}};
  const std::string key = EncodeRecordKey(record.id), value = EncodeRecordValue(record);
  CHECK(key == std::string(48, '\0') + std::string("\x01\x02\x03\x04", 4));
  std::string expected(76, '\0');
  expected[0] = 1;      // version
  expected[2] = 1;      // extents
  expected[4] = 1;      // payload bytes
  expected[28] = 0x55;  // sequence
  expected[60] = 9;     // first block
  expected[68] = 2;     // blocks
  CHECK(value == expected);
}

TEST_CASE("the parts of a key are adjacent and in order") {
  ChunkId id = NumberedRecord(1).id;
  std::string last;
  for (const uint32_t part : {0u, 1u, 255u, 256u, 65536u, 0xffffffffu}) {
    id.part = PartId(part);
    CHECK(EncodeRecordKey(id) > last);
    last = EncodeRecordKey(id);
  }
}

TEST_CASE("a record of another version is refused, not guessed at") {
  const IndexRecord record = NumberedRecord(1);
  CHECK(absl::IsFailedPrecondition(Decode(record, Patched<uint8_t>(record, 0, 2))));
  CHECK(absl::IsFailedPrecondition(Decode(record, Patched<uint8_t>(record, 0, 0))));
}

TEST_CASE("a record that cannot be true is data loss") {
  const IndexRecord record = NumberedRecord(1);
  CHECK(absl::IsDataLoss(Decode(record, "")));
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint8_t>(record, 1, 1))));   // flags
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint16_t>(record, 2, 0))));  // extents
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint16_t>(record, 2, 2))));
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint16_t>(record, 2, 33))));
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint32_t>(record, 4, 0))));  // payload
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint32_t>(record, 4, 0xffffffff))));
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint32_t>(record, 4, 8192))));   // too short
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint32_t>(record, 8, 16385))));  // tail
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint64_t>(record, 60, ~uint64_t{0}))));  // overflow
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint64_t>(record, 68, 0))));
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint64_t>(record, 68, 3))));
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint64_t>(record, 68, ~uint64_t{0}))));
  const std::string value = EncodeRecordValue(record), key = EncodeRecordKey(record.id);
  CHECK(absl::IsDataLoss(DecodeRecord(key.substr(1), value).status()));
  CHECK(absl::IsDataLoss(DecodeRecord(key + "x", value).status()));
}

TEST_CASE("every length but the right one is data loss") {
  const IndexRecord record = NumberedRecord(3);
  const std::string value = EncodeRecordValue(record) + std::string(32, '\0');
  for (size_t length = 0; length <= value.size(); ++length) {
    CHECK(Decode(record, value.substr(0, length)).ok() == (length == kFixedBytes + 16));
  }
}

TEST_CASE("extents that overlap are data loss") {
  IndexRecord record = NumberedRecord(1);
  record.shape.payload_bytes = 3 * 4096;
  record.extents = {{BlockNumber(10), BlockCount(2)}, {BlockNumber(20), BlockCount(2)}};
  REQUIRE(Decode(record, EncodeRecordValue(record)).ok());
  CHECK(absl::IsDataLoss(Decode(record, Patched<uint64_t>(record, 76, 11))));
  CHECK(Decode(record, Patched<uint64_t>(record, 76, 12)).ok());
}

TEST_CASE("mutated records are refused, or are valid records of their own") {
  SeededRandom random(99);
  int refused = 0, accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    const IndexRecord record = RandomRecord(random);
    std::string key = EncodeRecordKey(record.id), value = EncodeRecordValue(record);
    for (uint64_t flips = random.Between(1, 4); flips > 0; --flips) {
      value[random.Below(value.size())] ^= static_cast<char>(1 << random.Below(8));
    }
    if (random.Chance(0.2)) value.resize(random.Below(value.size() + 20));
    const absl::StatusOr<IndexRecord> decoded = DecodeRecord(key, value);
    if (!decoded.ok()) {
      ++refused;
      CHECK((absl::IsDataLoss(decoded.status()) || absl::IsFailedPrecondition(decoded.status())));
      continue;
    }
    ++accepted;
    // Every decoded record satisfies the encoder's checks and has exactly one encoding.
    CHECK(EncodeRecordValue(*decoded) == value);
  }
  CHECK(refused > 1000);
  CHECK(accepted > 100);
}

}  // namespace kvkeep
