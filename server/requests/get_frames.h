// GetFrames: one get, as frames to be sent, whichever way they go. The chunks of keys x parts come
// in order, in frames of whole pieces, each as soon as its pieces are in place: a chunk that comes
// from NVMe streams piece by piece, and the client copies and verifies one frame while the next is
// coming.
//
//   Next -> send the frame, meanwhile Prepare -> Next ... until done(); then error() ends the call
//
// No byte is copied here: a frame points into its pinned chunk in the arena. The next chunk is
// pinned (its promotion started) while one is being sent. Pinned memory is bounded: a get pins at
// most kWindowChunks that have frames to give. A chunk leaves the window with its last frame; after
// that only the frame holds it. PinBudget limits the bytes that the gets of a session, and of a
// tenant, pin: further gets wait, and the window is one chunk while there is no room for a second.
//
// A plan that asks beyond the node begins once that search is over: a chunk that is on its way then
// is given like one that comes from NVMe.
//
// One thread at a time calls Next, Prepare, done, error and Drop; the store's answers come on any
// thread. Owned by whoever sends, and by questions to the store that are not answered yet.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/requests/gauge.h"
#include "server/requests/get_frame_header.h"
#include "server/requests/get_plan.h"
#include "server/requests/pin_budget.h"
#include "server/requests/server_counters.h"
#include "tiers/base/mutex.h"
#include "tiers/store/store.h"

namespace kvkeep {

// A chunk that a get holds in place. The last holder unpins it, on any thread. This wakes nobody
// who waits for room: whoever let go of one calls PinBudget::Poke soon after, with no lock held.
struct PinnedChunk {
  PinnedChunk(ChunkReader chunk_reader, const PinBudget::Holder& holder, PinBudget* budget,
              ServerCounters* counters)
      : share(budget->Take(holder, chunk_reader.shape().payload_bytes)),
        chunks(&counters->pinned_chunks),
        bytes(&counters->pinned_bytes, chunk_reader.shape().payload_bytes),
        reader(std::move(chunk_reader)) {}
  // Released after the reader: zero means that nothing is pinned.
  PinBudget::Hold share;
  GaugeHold chunks, bytes;
  ChunkReader reader;
};

class GetFrames : public std::enable_shared_from_this<GetFrames> {
 public:
  static constexpr size_t kWindowChunks = 2;
  static constexpr size_t kFramePieces = 2;  // with more, gRPC does less at the same time

  struct Frame {
    GetFrameHeader header;
    // Null without payload. Otherwise the payload is header.frame_payload_bytes from header.offset
    // of its reader on.
    std::shared_ptr<const PinnedChunk> pin;
  };
  struct Deps {
    Store* store;
    PinBudget* pins;
    ServerCounters* counters;
    size_t frame_pieces = kFramePieces;  // whole pieces of a frame, at most
  };

  // Does nothing before the first Next. All of `deps` must outlive this and its frames. `wake` asks
  // for Next soon, on any thread, never inside a call of this object by the same thread. It is not
  // called anew once Drop was called, but may be under way still.
  static std::shared_ptr<GetFrames> Begin(const Deps& deps, GetPlan plan,
                                          absl::AnyInvocable<void() const> wake);

  // Returns the next frame to be sent, and counts it as sent. None: `wake` will be called, or
  // done().
  std::optional<Frame> Next();
  // Asks for what the next frame needs, while one is being sent. Call Next after it even if `wake`
  // is not called.
  void Prepare();
  // All frames were given, an error ended the get, or it was dropped.
  bool done() const;
  // Ends the call after the frames that were given.
  const absl::Status& error() const { return error_; }
  // Gives up all pins, except those of frames, and the wait for room. To be called in the end.
  void Drop();

  const GetPlan& plan() const { return plan_; }

 private:
  // A chunk of the window: pinned when it is a hit.
  struct Chunk {
    size_t index = 0;  // into keys x parts
    ReadOutcome outcome = ReadOutcome::kMiss;
    std::shared_ptr<PinnedChunk> pin;
    size_t next_piece = 0, end_piece = 0;  // still to be given
    bool begun = false;                    // a frame was given
    std::vector<uint64_t> checksums;       // of all pieces, once the first are in place
  };
  struct Events {
    bool may_pin = false;               // there is room now
    bool looked_beyond = false;         // the store's answer, whatever it is
    std::optional<absl::Status> ready;  // the store's answer about the next frame's pieces

    bool any() const { return may_pin || looked_beyond || ready.has_value(); }
  };

  GetFrames(const Deps& deps, GetPlan plan, absl::AnyInvocable<void() const> wake);
  PinBudget::Holder holder() const { return {plan_.tenant, plan_.session}; }
  void Tell(absl::AnyInvocable<void(Events&)> record);
  void TakeEvents();
  // Ends a call of the owner; returns false, and does not, if something came that it must see.
  bool EndCall();
  // Returns whether the window's front has something to give now; asks for it if not.
  bool FrontIsReady();
  void LookBeyond();
  // Returns false if there is no room to pin the next chunk; the get is woken when there is.
  bool MayPinNext();
  void FillWindow();
  absl::StatusOr<Chunk> Pinned(size_t index);
  void AskReady(const Chunk& chunk);
  size_t PiecesOfFrame(const Chunk& chunk) const;
  bool IsLastFrame(const Chunk& chunk) const;
  Frame TakeFrame();
  Frame OutcomeOf(const Chunk& chunk, v1::ChunkStatus status) const;
  Frame PiecesOf(Chunk* chunk);

  const Deps deps_;
  const absl::AnyInvocable<void() const> wake_;
  Mutex mu_;
  Events events_ ABSL_GUARDED_BY(mu_);
  bool in_call_ ABSL_GUARDED_BY(mu_) = false;  // the owner's call sees what comes now
  bool dropped_ ABSL_GUARDED_BY(mu_) = false;

  // Below: touched by the owner's calls only.
  const GetPlan plan_;
  absl::Status error_;  // ends the call after the window's chunks
  size_t next_index_ = 0;
  std::deque<Chunk> window_;
  bool looks_beyond_ = false, asked_beyond_ = false;  // no chunk is looked at yet
  bool asked_ = false, ended_ = false;
  PinBudget::Ticket awaits_room_ = 0;
  std::optional<absl::Status> ready_;  // of the front chunk's next frame
};

}  // namespace kvkeep
