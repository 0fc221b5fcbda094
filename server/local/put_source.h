// PutSource: the source of one put's payloads. There are three kinds: memory of the client
// (MemorySource), staging memory that the client is still writing (PartsSource) and memory of a GPU
// (GpuSource). A source says which pieces of the put may be filled, and fills them. The put keeps
// rounds, space, seals and answers (put_job.h).
//
//   Fetch, once a round -> Put::OnReady, perhaps several times -> Fill, once for each piece
//   Drop, when the put reads nothing more
//
// Fetch, Cancel, Look, awaited_piece and GiveUp are called on the loop, Fill and Drop on any
// thread. A source holds no lock of its own while it calls the put.
#pragma once

#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "tiers/base/extent.h"
#include "tiers/store/handles.h"

namespace kvkeep {

struct PutPiece {
  uint32_t chunk = 0, piece = 0;
};

class PutSource {
 public:
  // The put, as its source sees it. Thread-safe.
  class Put {
   public:
    virtual ~Put() = default;
    // Keeps the put, its space and its source while it lives.
    virtual std::shared_ptr<const void> Hold() = 0;
    // Where the image of a chunk will lie. REQUIRES: the round has a piece of it.
    virtual const ExtentList& extents(size_t chunk) const = 0;
    // The first `pieces` of the put may be filled, counted over all rounds. A number that is not
    // above an earlier one says nothing new, so calls may overtake each other.
    virtual void OnReady(size_t pieces) = 0;
    // Part of a chunk does not come, so the put rejects the chunk. Called before OnReady for that
    // piece, which is not filled then.
    virtual void Lose(size_t chunk, const absl::Status& why) = 0;
    // This round reads nothing more of the client's memory. Called before OnReady for its last
    // piece, so the round still goes on.
    virtual void OnFetched() = 0;
  };
  static constexpr size_t kAllPieces = std::numeric_limits<size_t>::max();
  // Says whether Fill may wait for the owner of the memory.
  enum class Wait { kMay, kNever };

  virtual ~PutSource() = default;

  // Begins a round: OnReady tells which of its pieces may be filled, perhaps within the call.
  // REQUIRES: `pieces` is not empty; all pieces of the round before were filled or lost.
  virtual void Fetch(std::span<const PutPiece> pieces) = 0;
  // Fills one piece of a chunk's space. An error rejects the chunk; DeadlineExceeded says that the
  // piece was read after the put's deadline. REQUIRES: the piece is ready, or MayFillOnLoop().
  virtual absl::Status Fill(const PutPiece& piece, Wait wait, Reservation* space) = 0;
  // Lets go of the client's memory. REQUIRES: nothing reads that any more.
  virtual void Drop() = 0;
  // Begins nothing further. Pieces that do not come any more count as ready from now on; the put
  // does not fill them.
  virtual void Cancel() {}

  // Returns true if pieces may be filled without Fetch and without waiting (Wait::kNever).
  virtual bool MayFillOnLoop() const { return false; }
  // Returns how many tasks of the put a thread does before other puts get their turn.
  virtual size_t tasks_a_run() const { return 1; }

  // ---- for a put in parts; others wait for no bytes Looks how many bytes are there now, and tells
  // the put.
  virtual void Look() {}
  // Returns the first piece that is not there; none if nothing is waited for.
  virtual std::optional<uint64_t> awaited_piece() { return std::nullopt; }
  // Gives up the missing bytes: the put loses their chunk. Returns false if nothing was waited for.
  virtual bool GiveUp(const absl::Status& /*why*/) { return false; }
};

}  // namespace kvkeep
