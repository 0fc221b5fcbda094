#include "tiers/fsck/image_check.h"

#include <catch2/catch.hpp>

#include "tests/sim/payload.h"

namespace kvkeep {
namespace {

const DeviceSpace kSpace = {
    .device = *Uuid::FromBytes("d"), .blocks = BlockCount(250), .file_blocks = BlockCount(100)};

bool Fits(const std::vector<std::pair<uint64_t, uint64_t>>& runs) {
  ExtentList extents;
  for (const auto& [first, count] : runs)
    extents.push_back({BlockNumber(first), BlockCount(count)});
  return CheckExtents(extents, kSpace).ok();
}

// The bytes behind the header page, as they lie on a device.
std::vector<std::byte> Behind(const std::vector<std::byte>& payload,
                              const std::vector<std::byte>& tail, ImageIdentity* identity) {
  identity->shape = {.payload_bytes = static_cast<uint32_t>(payload.size()),
                     .tail_bytes = static_cast<uint32_t>(tail.size())};
  identity->tail_checksum = Xxh3(tail);
  identity->piece_checksums.clear();
  for (size_t i = 0; i < PieceCount(payload.size()); ++i) {
    identity->piece_checksums.push_back(
        Xxh3(std::span(payload).subspan(i * kPieceBytes, PieceSize(payload.size(), i))));
  }
  std::vector<std::byte> bytes = payload;
  bytes.resize(identity->shape.blocks().value() * kBlockBytes - kHeaderBytes);
  if (!tail.empty()) {
    std::copy(tail.begin(), tail.end(),
              bytes.begin() + static_cast<ptrdiff_t>(identity->shape.tail_offset() - kHeaderBytes));
  }
  return bytes;
}

PayloadCheck CheckInRuns(const ImageIdentity& identity, std::span<const std::byte> bytes,
                         size_t run) {
  PayloadCheck check(identity);
  for (size_t at = 0; at < bytes.size(); at += run) {
    check.Append(bytes.subspan(at, std::min(run, bytes.size() - at)));
  }
  return check;
}

}  // namespace

TEST_CASE("an image may lie in runs inside the data files, beside their labels") {
  CHECK(Fits({{1, 99}}));
  CHECK(Fits({{101, 99}, {1, 99}, {201, 49}}));
  CHECK_FALSE(Fits({{0, 1}}));             // a label
  CHECK_FALSE(Fits({{200, 2}}));           // another
  CHECK_FALSE(Fits({{50, 51}}));           // across a label
  CHECK_FALSE(Fits({{201, 50}}));          // past the end
  CHECK_FALSE(Fits({{250, 1}}));           // behind it
  CHECK_FALSE(Fits({{249, UINT64_MAX}}));  // wraps
  CHECK_FALSE(Fits({{UINT64_MAX, 2}}));
  CHECK_FALSE(Fits({{5, 0}}));
  CHECK_FALSE(Fits({{5, 5}, {9, 1}}));
}

TEST_CASE("a payload that comes in runs of any size is judged the same") {
  ImageIdentity identity;
  for (const size_t payload_bytes : {size_t{1}, size_t{4096}, kPieceBytes, 2 * kPieceBytes + 63}) {
    for (const size_t tail_bytes : {0, 1, 5000}) {
      const auto payload = MakePayload(1, 1, payload_bytes);
      const auto tail = MakePayload(2, 1, tail_bytes);
      std::vector<std::byte> bytes = Behind(payload, tail, &identity);
      for (const size_t run : {size_t{4096}, size_t{65536}, 4 * kPieceBytes}) {
        const PayloadCheck good = CheckInRuns(identity, bytes, run);
        CHECK(good.bad_pieces().empty());
        CHECK_FALSE(good.tail_is_bad());
      }
      bytes[payload_bytes - 1] ^= std::byte{1};
      const PayloadCheck last = CheckInRuns(identity, bytes, 8192);
      CHECK(last.bad_pieces() == std::vector<size_t>{PieceCount(payload_bytes) - 1});
      CHECK_FALSE(last.tail_is_bad());
      bytes[payload_bytes - 1] ^= std::byte{1};
      if (tail_bytes == 0) continue;
      const size_t tail_at = identity.shape.tail_offset() - kHeaderBytes;
      for (const size_t at : {tail_at, tail_at + tail_bytes - 1}) {
        bytes[at] ^= std::byte{1};
        CHECK(CheckInRuns(identity, bytes, 4096).tail_is_bad());
        CHECK(CheckInRuns(identity, bytes, 4096).bad_pieces().empty());
        bytes[at] ^= std::byte{1};
      }
    }
  }
}

TEST_CASE("a header counts only for the place and the device that it was made for") {
  MacKey key{};
  ImageHeader header;
  header.identity.id = {.ns = {}, .key = MakeKey(1), .part = PartId(0)};
  Behind(MakePayload(1, 1, 4096), {}, &header.identity);
  header.placement = {.tier = Tier::kG3,
                      .place = kSpace.device,
                      .incarnation = Incarnation(1),
                      .generation = Generation(2),
                      .extents = {{BlockNumber(7), BlockCount(2)}}};
  const auto at = [&](BlockNumber block, const MacKey& with) {
    std::array<std::byte, kHeaderBytes> page;
    EncodeHeader(header, key, page);
    return DecodeHeaderAt(page, with, block, kSpace).ok();
  };
  CHECK(at(BlockNumber(7), key));
  CHECK_FALSE(at(BlockNumber(8), key));
  MacKey other = key;
  other[0] = std::byte{1};
  CHECK_FALSE(at(BlockNumber(7), other));
  header.placement.tier = Tier::kG2;  // what a client can copy from its own memory
  CHECK_FALSE(at(BlockNumber(7), key));
  header.placement.tier = Tier::kG3;
  header.placement.place = *Uuid::FromBytes("e");
  CHECK_FALSE(at(BlockNumber(7), key));
  header.placement.place = kSpace.device;
  header.placement.extents = {{BlockNumber(99), BlockCount(2)}};
  CHECK_FALSE(at(BlockNumber(99), key));
}

TEST_CASE("a record differs from a header in each of its fields") {
  ImageHeader header;
  header.identity.id = {.ns = {}, .key = MakeKey(1), .part = PartId(3)};
  Behind(MakePayload(1, 1, 4096), {}, &header.identity);
  header.placement.extents = {{BlockNumber(7), BlockCount(2)}};
  const Digest128 root{1, 2};
  const IndexRecord record = RecordOf(header, root);
  CHECK(CheckAgainstRecord(header, root, record).ok());
  const auto differs = [&](auto change) {
    IndexRecord other = record;
    change(other);
    return !CheckAgainstRecord(header, root, other).ok();
  };
  CHECK(differs([](IndexRecord& r) { r.id.part = PartId(4); }));
  CHECK(differs([](IndexRecord& r) { r.shape.payload_bytes = 4095; }));
  CHECK(differs([](IndexRecord& r) { r.incarnation = Incarnation(9); }));
  CHECK(differs([](IndexRecord& r) { r.generation = Generation(9); }));
  CHECK(differs([](IndexRecord& r) { r.extents[0].first = BlockNumber(8); }));
  CHECK(differs([](IndexRecord& r) { r.root.high = 9; }));
  CHECK(differs([](IndexRecord& r) { r.created_unix_us = 9; }));
}

TEST_CASE("chunk and placement are compared apart from what lies there") {
  ImageHeader header;
  header.identity.id = {.ns = {}, .key = MakeKey(1), .part = PartId(3)};
  Behind(MakePayload(1, 1, 4096), {}, &header.identity);
  header.placement.extents = {{BlockNumber(7), BlockCount(2)}};
  const IndexRecord record = RecordOf(header, {1, 2});
  const auto same = [&](auto change) {
    IndexRecord other = record;
    change(other);
    return IsOfPlacement(header, other);
  };
  CHECK(same([](IndexRecord& r) { r.root.high = 9; }));
  CHECK(same([](IndexRecord& r) { r.created_unix_us = 9; }));
  CHECK_FALSE(same([](IndexRecord& r) { r.id.part = PartId(4); }));
  CHECK_FALSE(same([](IndexRecord& r) { r.shape.tail_bytes = 1; }));
  CHECK_FALSE(same([](IndexRecord& r) { r.incarnation = Incarnation(9); }));
  CHECK_FALSE(same([](IndexRecord& r) { r.generation = Generation(9); }));
  CHECK_FALSE(same([](IndexRecord& r) { r.extents[0].count = BlockCount(3); }));
}

}  // namespace kvkeep
