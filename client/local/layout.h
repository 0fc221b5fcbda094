// Layout: turns the places in a daemon's reply into pointers into the mapped segments.
//
// Every place is checked before it becomes a pointer: INTERNAL names the fault. No state.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "client/internal/mappings.h"
#include "client/values/shared_memory.h"
#include "proto/local/protocol.h"
#include "tiers/base/key.h"

namespace kvkeep::client {

// A leased chunk. Pointers are valid while the Mappings live.
struct LaidChunk {
  uint32_t chunk = 0;
  uint32_t payload_bytes = 0;
  uint32_t tail_bytes = 0;
  uint32_t progress_word = local::kNoProgressWord;
  uint32_t first_run = 0;  // into Layout::runs
  uint32_t runs = 0;
};

// The leased chunks of one reply, in the order keys x parts.
struct Layout {
  std::vector<LaidChunk> chunks;
  std::vector<std::span<const std::byte>> runs;  // of images: header page, payload, tail

  // `places` and `runs` are the daemon's; chunks below `chunk_limit` were asked for.
  static absl::StatusOr<Layout> Build(const Mappings& mappings,
                                      std::span<const local::Place> places,
                                      std::span<const local::ImageRun> runs, uint64_t chunk_limit);

  std::span<const std::span<const std::byte>> runs_of(const LaidChunk& chunk) const {
    return std::span(runs).subspan(chunk.first_run, chunk.runs);
  }
  const std::byte* header(const LaidChunk& chunk) const { return runs[chunk.first_run].data(); }
  ChunkView View(const LaidChunk& chunk) const;
};

// Returns how many leading pieces of a chunk can be read. DATA_LOSS: the chunk is lost, a miss.
absl::StatusOr<size_t> PiecesReady(const Mappings& mappings, const LaidChunk& chunk);
// Waits until that many pieces can be read. DATA_LOSS, DEADLINE_EXCEEDED; FAILED_PRECONDITION: the
// lease is gone.
absl::Status WaitForPieces(const Mappings& mappings, const LaidChunk& chunk, size_t pieces,
                           std::chrono::steady_clock::time_point deadline);

// Returns the runs of a part of an image.
using ByteRuns = absl::InlinedVector<std::span<const std::byte>, 1>;
ByteRuns CutImage(std::span<const std::span<const std::byte>> image, uint64_t offset,
                  uint64_t bytes);

// Contents of a header page. Readable once the chunk is whole. Only the daemon checks the MAC.
struct HeaderFacts {
  NamespaceDigest ns;
  ChunkKey key;
  uint32_t part = 0;
  uint32_t payload_bytes = 0;
  std::vector<uint64_t> piece_checksums;
};
HeaderFacts ReadHeader(const std::byte* page, size_t pieces);

}  // namespace kvkeep::client
