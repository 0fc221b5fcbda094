#include "tiers/fsck/image_reader.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/fsck/encrypted_check.h"

namespace kvkeep::fsck_internal {
namespace {

constexpr auto kTellEvery = std::chrono::milliseconds(200);
constexpr size_t kPartsNamed = 4;

ImageFault Unreadable(BlockNumber where, const absl::Status& status) {
  return {
      .problem = FsckProblem::kUnreadable, .where = where, .what = std::string(status.message())};
}

// "pieces 1, 2 of 5 do not match the checksum"
std::string Named(const std::vector<size_t>& bad, absl::string_view kind, size_t all,
                  absl::string_view what) {
  const std::span named = std::span(bad).first(std::min(bad.size(), kPartsNamed));
  return absl::StrCat(kind, bad.size() == 1 ? " " : "s ", absl::StrJoin(named, ", "),
                      named.size() < bad.size() ? ", ..." : "", " of ", all,
                      bad.size() == 1 ? " does" : " do", " not match the ", what);
}

}  // namespace

std::optional<ImageFault> ReadHeader(const OfflineDevice& device, const MacKey& mac_key,
                                     BlockNumber first, const IndexRecord* record,
                                     ReadBuffer& buffer, FoundImage* image) {
  const std::span<std::byte> page = buffer.First(kHeaderBytes);
  const absl::Status read = device.Read(first, page);
  if (!read.ok()) return Unreadable(first, read);
  const ConstHeaderPage header_page(page.data(), kHeaderBytes);
  absl::StatusOr<ImageHeader> header = DecodeHeaderAt(header_page, mac_key, first, device.space());
  if (!header.ok()) {
    return ImageFault{
        .where = first, .what = std::string(header.status().message()), .is_not_there = true};
  }
  image->header = *std::move(header);
  image->root = HeaderRoot(header_page);
  if (record == nullptr) return std::nullopt;
  const absl::Status same = CheckAgainstRecord(image->header, image->root, *record);
  if (same.ok()) return std::nullopt;
  return ImageFault{.where = first,
                    .what = std::string(same.message()),
                    .is_not_there = !IsOfPlacement(image->header, *record)};
}

std::optional<ImageFault> ReadPayload(const OfflineDevice& device, const KeyRing* keys,
                                      ReadBuffer& buffer, FoundImage* image) {
  ImageHeader header = image->header;  // its checksums become plaintext
  const ExtentList& extents = header.placement.extents;
  std::optional<ImageCipher> cipher;
  std::optional<EncryptedCheck> encrypted;
  if (header.encryption.has_value()) {
    const DataKey* key = keys == nullptr ? nullptr : keys->Find(header.encryption->key_id);
    if (key == nullptr) {
      image->unchecked = true;
      return std::nullopt;
    }
    cipher.emplace(*key, header.identity, *header.encryption);
    if (const absl::Status opened = cipher->DecryptChecksums(&header); !opened.ok()) {
      return ImageFault{.where = extents[0].first, .what = std::string(opened.message())};
    }
    encrypted.emplace(*cipher, header);
  }
  const ImageShape& shape = header.identity.shape;
  const uint64_t end = shape.blocks().value() * kBlockBytes;
  PayloadCheck check(header.identity);
  for (uint64_t at = kHeaderBytes; at < end;) {
    const ByteRun run = LocateInImage(extents, at, std::min(end - at, ReadBuffer::kBytes));
    const BlockNumber block(run.tier_offset / kBlockBytes);
    const std::span<std::byte> bytes = buffer.First(run.bytes);
    const absl::Status read = device.Read(block, bytes);
    if (!read.ok()) return Unreadable(block, read);
    if (encrypted.has_value()) encrypted->Decrypt(bytes);
    check.Append(bytes);
    at += run.bytes;
  }
  const auto where = [&](uint64_t at) {
    return BlockNumber(LocateInImage(extents, at, 1).tier_offset / kBlockBytes);
  };
  if (encrypted.has_value() && !encrypted->bad_units().empty()) {
    const std::vector<size_t>& bad = encrypted->bad_units();
    return ImageFault{.problem = FsckProblem::kPayload,
                      .where = where(shape.unit_begin(bad[0])),
                      .what = Named(bad, "unit", shape.units(), "tag")};
  }
  const std::vector<size_t>& bad = check.bad_pieces();
  if (!bad.empty()) {
    return ImageFault{.problem = FsckProblem::kPayload,
                      .where = where(kHeaderBytes + bad[0] * kPieceBytes),
                      .what = Named(bad, "piece", shape.pieces(), "checksum")};
  }
  if (!check.tail_is_bad()) return std::nullopt;
  return ImageFault{.problem = FsckProblem::kPayload,
                    .where = where(shape.tail_offset()),
                    .what = "the metadata tail does not match its checksum"};
}

void InParallel(size_t count, uint32_t threads, absl::FunctionRef<void(size_t, ReadBuffer&)> work,
                absl::FunctionRef<void()> after_each) {
  KVKEEP_CHECK(threads > 0);
  std::atomic<size_t> next = 0;
  const auto run = [&](bool caller) {
    ReadBuffer buffer;
    for (size_t i = next++; i < count; i = next++) {
      work(i, buffer);
      if (caller) after_each();
    }
  };
  std::vector<std::thread> others;
  const size_t useful = std::min<size_t>(threads, count);
  for (size_t i = 1; i < useful; ++i) others.emplace_back(run, false);
  run(true);
  for (std::thread& other : others) other.join();
}

void ProgressTeller::Tell(absl::string_view phase, uint64_t images) {
  if (options_.progress == nullptr) return;
  const MonotonicTime now = RealClock()->Now();
  if (now - last_ < kTellEvery) return;
  last_ = now;
  options_.progress({.phase = phase, .images = images, .read_bytes = device_.read_bytes()});
}

}  // namespace kvkeep::fsck_internal
