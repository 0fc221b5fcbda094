#include "tiers/store/device_tier.h"

#include <algorithm>

namespace kvkeep::store_internal {
namespace {

// Submits the image's bytes [at, end), in runs that are contiguous on the device and in memory.
template <typename Memory, typename Submit>
void ForEachRun(const ExtentList& extents, const Memory& memory, uint64_t at, uint64_t end,
                Submit submit) {
  while (at < end) {
    const ByteRun run = LocateInImage(extents, at, end - at);
    const std::span<std::byte> bytes = memory(at, run.bytes);
    submit(DeviceOffset(run.tier_offset), bytes);
    at += bytes.size();
  }
}

DeviceOffset Begin(const ExtentList& extents) {
  return DeviceOffset(extents[0].first.value() * kBlockBytes);
}

}  // namespace

void DeviceTier::Prefetch() const {
  constexpr uintptr_t kLine = 64;
  const auto begin = reinterpret_cast<uintptr_t>(&presence) - sizeof(uint64_t);
  const auto end = reinterpret_cast<uintptr_t>(&commits) + sizeof(uint64_t);
  for (uintptr_t line = begin / kLine * kLine; line < end; line += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(line));
  }
}

void DeviceTier::Read(ImageRead read) {
  Device& io = device->io();
  ReadSink* const sink = read.sink;
  Promotion* const promotion = read.promotion;
  // Makes all of them before it hands over the first: the receiver of an outcome may end the rest.
  std::vector<IoOperation> reads;
  reads.push_back({.kind = IoOperation::Kind::kRead,
                   .offset = Begin(read.extents),
                   .data = read.header.data(),
                   .bytes = kHeaderBytes,
                   .done = [sink, promotion, page = read.header](absl::Status status) {
                     sink->OnHeaderRead(*promotion, page, std::move(status));
                   }});
  for (size_t piece = 0; piece < read.shape.pieces(); ++piece) {
    ForEachRun(read.extents, read.to, read.shape.piece_begin(piece), read.shape.piece_end(piece),
               [&](DeviceOffset offset, std::span<std::byte> to) {
                 reads.push_back({.kind = IoOperation::Kind::kRead,
                                  .offset = offset,
                                  .data = to.data(),
                                  .bytes = to.size(),
                                  .done = [sink, promotion, piece, bytes = to.size()](
                                              absl::Status status) {
                                    sink->OnPieceRead(*promotion, piece, bytes, std::move(status));
                                  }});
               });
  }
  for (IoOperation& operation : reads) io.Submit(std::move(operation));
}

void DeviceTier::Write(ImageWrite write) {
  Device& io = device->io();
  const auto done = std::make_shared<std::function<void(uint64_t, absl::Status)>>(
      std::move(write.done));
  std::vector<IoOperation> writes;
  const auto add = [&](DeviceOffset offset, std::span<const std::byte> from) {
    writes.push_back({.kind = IoOperation::Kind::kWrite,
                      .offset = offset,
                      .data = const_cast<std::byte*>(from.data()),  // a write only reads it
                      .bytes = from.size(),
                      .done = [done, bytes = from.size()](absl::Status status) {
                        (*done)(bytes, std::move(status));
                      }});
  };
  add(Begin(write.extents), write.header);
  const uint64_t end = write.shape.blocks().value() * kBlockBytes;
  for (uint64_t at = kHeaderBytes; at < end; at += kPieceBytes) {
    ForEachRun(write.extents, write.from, at, std::min(end, at + kPieceBytes), add);
  }
  for (IoOperation& operation : writes) io.Submit(std::move(operation));
}

ImagePlacement DeviceTier::PlacementOf(const Chunk& chunk) const {
  return {.tier = Tier::kG3,
          .place = device->uuid(),
          .incarnation = incarnations->At(chunk.g3_incarnation),
          .generation = chunk.g3_generation,
          .extents = chunk.g3};
}

absl::Status DeviceTier::CheckHeader(const ImageHeader& header,
                                     const ExpectedHeader& expected) const {
  if (header.identity.id == expected.id && header.identity.shape == expected.shape &&
      header.placement == expected.placement) {
    return absl::OkStatus();
  }
  return absl::DataLossError("the image on the device is of another chunk or placement");
}

uint32_t DeviceTier::NoteRuns(const Chunk& chunk) {
  uint32_t runs = 0;
  for (const Extent& extent : chunk.g3.list()) {
    runs += extent.first.value() != read_up_to;
    read_up_to = extent.end();
  }
  return runs;
}

std::vector<int64_t> DeviceTier::newest_recency() const {
  std::vector<int64_t> newest;
  for (const auto& policy : policies) newest.push_back(policy->Newest());
  return newest;
}

}  // namespace kvkeep::store_internal
