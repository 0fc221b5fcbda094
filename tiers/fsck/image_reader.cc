#include "tiers/fsck/image_reader.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tiers/base/clock.h"

namespace kvkeep::fsck_internal {
namespace {

constexpr auto kTellEvery = std::chrono::milliseconds(200);
constexpr size_t kPiecesNamed = 4;

ImageFault Unreadable(BlockNumber where, const absl::Status& status) {
  return {
      .problem = FsckProblem::kUnreadable, .where = where, .what = std::string(status.message())};
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
  if (!header.ok())
    return ImageFault{.where = first, .what = std::string(header.status().message())};
  image->header = *std::move(header);
  image->root = HeaderRoot(header_page);
  if (record == nullptr) return std::nullopt;
  const absl::Status same = CheckAgainstRecord(image->header, image->root, *record);
  if (same.ok()) return std::nullopt;
  return ImageFault{.where = first, .what = std::string(same.message()), .another_is_there = true};
}

std::optional<ImageFault> ReadPayload(const OfflineDevice& device, const ImageHeader& header,
                                      ReadBuffer& buffer) {
  const ExtentList& extents = header.placement.extents;
  const uint64_t end = header.identity.shape.blocks().value() * kBlockBytes;
  PayloadCheck check(header.identity);
  for (uint64_t at = kHeaderBytes; at < end;) {
    const ByteRun run = LocateInImage(extents, at, std::min(end - at, ReadBuffer::kBytes));
    const BlockNumber block(run.tier_offset / kBlockBytes);
    const std::span<std::byte> bytes = buffer.First(run.bytes);
    const absl::Status read = device.Read(block, bytes);
    if (!read.ok()) return Unreadable(block, read);
    check.Append(bytes);
    at += run.bytes;
  }
  const std::vector<size_t>& bad = check.bad_pieces();
  if (bad.empty() && !check.tail_is_bad()) return std::nullopt;
  ImageFault fault{.problem = FsckProblem::kPayload};
  uint64_t where = header.identity.shape.tail_offset();
  if (!bad.empty()) {
    where = kHeaderBytes + bad[0] * kPieceBytes;
    const std::span named = std::span(bad).first(std::min(bad.size(), kPiecesNamed));
    fault.what = absl::StrCat(bad.size() == 1 ? "piece " : "pieces ", absl::StrJoin(named, ", "),
                              named.size() < bad.size() ? ", ..." : "", " of ",
                              header.identity.shape.pieces(), bad.size() == 1 ? " does" : " do",
                              " not match the checksum");
  } else {
    fault.what = "the metadata tail does not match its checksum";
  }
  fault.where = BlockNumber(LocateInImage(extents, where, 1).tier_offset / kBlockBytes);
  return fault;
}

void InParallel(size_t count, uint32_t threads, absl::FunctionRef<void(size_t, ReadBuffer&)> work,
                absl::FunctionRef<void()> after_each) {
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
