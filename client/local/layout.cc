#include "client/local/layout.h"

#include <absl/strings/str_cat.h>

#include <cstring>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/image.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

// Offsets in the header page: tiers/base/image.h.
constexpr size_t kNamespaceAt = 16;
constexpr size_t kKeyAt = 32;
constexpr size_t kPartAt = 64;
constexpr size_t kPayloadBytesAt = 68;
constexpr size_t kChecksumsAt = 128;

absl::Status Wrong(const local::Place& place, absl::string_view what) {
  return absl::InternalError(absl::StrCat("local: the daemon's place of chunk ", place.chunk,
                                          " is wrong: ", std::string(what)));
}

absl::StatusOr<std::span<const std::byte>> Resolve(const ArenaMap& arena, const local::Place& place,
                                                   const local::ImageRun& run) {
  const std::span<const std::byte> segment = arena.Segment(run.segment);
  const uint64_t bytes = uint64_t{run.blocks} * kBlockBytes;
  if (segment.empty()) return Wrong(place, absl::StrCat("segment ", run.segment));
  if (bytes == 0 || run.offset % kBlockBytes != 0 || run.offset > segment.size() ||
      bytes > segment.size() - run.offset) {
    return Wrong(place, absl::StrCat(run.blocks, " blocks at ", run.offset, " of a segment of ",
                                     segment.size(), " bytes"));
  }
  return segment.subspan(run.offset, bytes);
}

absl::Status Add(const Mappings& mappings, const local::Place& place,
                 std::span<const local::ImageRun> all_runs, Layout* layout) {
  const ImageShape shape{.payload_bytes = place.payload_bytes, .tail_bytes = place.tail_bytes};
  if (absl::Status bad = ValidateShape(shape); !bad.ok()) return Wrong(place, bad.message());
  if (place.progress_word >= mappings.progress_words()) {
    return Wrong(place, absl::StrCat("progress word ", place.progress_word));
  }
  if (place.runs == 0 || place.runs > kMaxExtents || place.first_run > all_runs.size() ||
      place.runs > all_runs.size() - place.first_run) {
    return Wrong(place, absl::StrCat("runs ", place.first_run, " + ", place.runs));
  }
  LaidChunk laid{.chunk = place.chunk,
                 .payload_bytes = place.payload_bytes,
                 .tail_bytes = place.tail_bytes,
                 .progress_word = place.progress_word,
                 .first_run = static_cast<uint32_t>(layout->runs.size())};
  uint64_t bytes = 0;
  for (const local::ImageRun& run : all_runs.subspan(place.first_run, place.runs)) {
    KVKEEP_ASSIGN_OR_RETURN(const auto memory, Resolve(mappings.arena(), place, run));
    bytes += memory.size();
    std::span<const std::byte>* const last = laid.runs == 0 ? nullptr : &layout->runs.back();
    if (last != nullptr && last->data() + last->size() == memory.data()) {
      *last = {last->data(), last->size() + memory.size()};  // one run after all
    } else {
      layout->runs.push_back(memory);
      ++laid.runs;
    }
  }
  if (bytes != shape.blocks().value() * kBlockBytes) {
    return Wrong(place,
                 absl::StrCat(bytes, " bytes for an image of ", shape.blocks().value(), " blocks"));
  }
  layout->chunks.push_back(laid);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Layout> Layout::Build(const Mappings& mappings, std::span<const local::Place> places,
                                     std::span<const local::ImageRun> runs, uint64_t chunk_limit) {
  Layout layout;
  layout.chunks.reserve(places.size());
  layout.runs.reserve(runs.size());
  uint64_t next = 0;
  for (const local::Place& place : places) {
    if (place.chunk < next || place.chunk >= chunk_limit) {
      return Wrong(place, "not one that was asked for, or out of order");
    }
    next = uint64_t{place.chunk} + 1;
    KVKEEP_RETURN_IF_ERROR(Add(mappings, place, runs, &layout));
  }
  return layout;
}

ChunkView Layout::View(const LaidChunk& chunk) const {
  const ImageShape shape{.payload_bytes = chunk.payload_bytes, .tail_bytes = chunk.tail_bytes};
  ChunkView view{.chunk = chunk.chunk,
                 .payload_bytes = chunk.payload_bytes,
                 .runs = CutImage(runs_of(chunk), kHeaderBytes, chunk.payload_bytes),
                 .metadata = {}};
  if (chunk.tail_bytes > 0) {
    view.metadata = CutImage(runs_of(chunk), shape.tail_offset(), chunk.tail_bytes);
  }
  return view;
}

ByteRuns CutImage(std::span<const std::span<const std::byte>> image, uint64_t offset,
                  uint64_t bytes) {
  ByteRuns cut;
  for (const std::span<const std::byte> run : image) {
    if (bytes == 0) break;
    if (offset >= run.size()) {
      offset -= run.size();
      continue;
    }
    const std::span<const std::byte> part =
        run.subspan(offset, std::min<uint64_t>(bytes, run.size() - offset));
    cut.push_back(part);
    bytes -= part.size();
    offset = 0;
  }
  KVKEEP_CHECK(bytes == 0);
  return cut;
}

HeaderFacts ReadHeader(const std::byte* page, size_t pieces) {
  KVKEEP_CHECK(pieces <= kMaxPieces);
  HeaderFacts facts;
  std::memcpy(facts.ns.bytes.data(), page + kNamespaceAt, facts.ns.bytes.size());
  std::memcpy(facts.key.bytes.data(), page + kKeyAt, facts.key.bytes.size());
  facts.part = LoadAt<uint32_t>(page + kPartAt);
  facts.payload_bytes = LoadAt<uint32_t>(page + kPayloadBytesAt);
  facts.piece_checksums.resize(pieces);
  std::memcpy(facts.piece_checksums.data(), page + kChecksumsAt, pieces * sizeof(uint64_t));
  return facts;
}

}  // namespace kvkeep::client
