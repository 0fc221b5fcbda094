// Acquired: chunks in place, and their pieces that can be read.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>

#include "client/internal/mappings.h"
#include "client/local/layout.h"
#include "client/local/test_point.h"
#include "client/values/shared_memory.h"
#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using std::chrono::steady_clock;

// The longest single futex wait, after which the end of the daemon is noticed.
constexpr std::chrono::milliseconds kLongestWait{50};

}  // namespace

Acquired::Acquired(std::shared_ptr<const Mappings> mappings, std::shared_ptr<const Layout> layout)
    : mappings_(std::move(mappings)), layout_(std::move(layout)) {
  chunks.reserve(layout_->chunks.size());
  for (const LaidChunk& chunk : layout_->chunks) chunks.push_back(layout_->View(chunk));
}

absl::StatusOr<size_t> Acquired::Ready(size_t view) const {
  KVKEEP_CHECK(mappings_ != nullptr && view < layout_->chunks.size());
  return PiecesReady(*mappings_, layout_->chunks[view]);
}

size_t Acquired::pieces_ready(size_t view) const { return Ready(view).value_or(0); }

absl::Status Acquired::WaitPieces(size_t view, size_t pieces, Deadline timeout) const {
  KVKEEP_CHECK(mappings_ != nullptr && view < layout_->chunks.size());
  return WaitForPieces(*mappings_, layout_->chunks[view], pieces, steady_clock::now() + timeout);
}

absl::Status Acquired::WaitAll(Deadline timeout) const {
  const auto deadline = steady_clock::now() + timeout;
  if (mappings_ == nullptr) return absl::OkStatus();
  for (const LaidChunk& chunk : layout_->chunks) {
    KVKEEP_RETURN_IF_ERROR(
        WaitForPieces(*mappings_, chunk, PieceCount(chunk.payload_bytes), deadline));
  }
  return absl::OkStatus();
}

bool Acquired::valid() const { return mappings_ != nullptr && mappings_->Alive(); }

bool Acquired::Verify(size_t view) const {
  KVKEEP_CHECK(mappings_ != nullptr && view < layout_->chunks.size());
  const LaidChunk& chunk = layout_->chunks[view];
  const size_t pieces = PieceCount(chunk.payload_bytes);
  const HeaderFacts header = ReadHeader(layout_->header(chunk), pieces);
  if (header.payload_bytes != chunk.payload_bytes) return false;
  for (size_t piece = 0; piece < pieces; ++piece) {
    Xxh3Stream sum;
    for (const auto run :
         CutImage(chunks[view].runs, piece * kPieceBytes, PieceSize(chunk.payload_bytes, piece))) {
      sum.Append(run);
    }
    if (sum.Digest() != header.piece_checksums[piece]) return false;
  }
  return true;
}

absl::StatusOr<size_t> PiecesReady(const Mappings& mappings, const LaidChunk& chunk) {
  const size_t all = PieceCount(chunk.payload_bytes);
  if (chunk.progress_word == local::kNoProgressWord) return all;
  const local::ProgressWord word = mappings.Progress(chunk.progress_word);
  if ((word & local::kProgressFailed) != 0) {
    return absl::DataLossError(
        absl::StrCat("chunk ", chunk.chunk, " of the call was lost on its way to G2"));
  }
  return std::min<size_t>(word, all);
}

absl::Status WaitForPieces(const Mappings& mappings, const LaidChunk& chunk, size_t pieces,
                           steady_clock::time_point deadline) {
  pieces = std::min(pieces, PieceCount(chunk.payload_bytes));
  bool waited = false;
  while (true) {
    if (mappings.over()) return absl::FailedPreconditionError("the session is over");
    const local::ProgressWord seen =
        chunk.progress_word == local::kNoProgressWord ? 0 : mappings.Progress(chunk.progress_word);
    KVKEEP_ASSIGN_OR_RETURN(const size_t ready, PiecesReady(mappings, chunk));
    if (ready >= pieces) return absl::OkStatus();
    if (!std::exchange(waited, true)) TestPoint("piece-wait");
    if (!mappings.Alive()) {
      return absl::FailedPreconditionError("the lease was revoked, or the daemon is gone");
    }
    const std::chrono::nanoseconds left = deadline - steady_clock::now();
    if (left <= left.zero()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "chunk ", chunk.chunk, " of the call: ", ready, " of ", pieces, " pieces came in time"));
    }
    mappings.WaitProgress(chunk.progress_word, seen,
                          std::min<std::chrono::nanoseconds>(left, kLongestWait));
  }
}

}  // namespace kvkeep::client
