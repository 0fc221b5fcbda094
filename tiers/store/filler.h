// Filler: fills space in G2 with images, and tells when their bytes may be read.
//
// A promotion (promotion.h) reads an image from a lower tier, or verifies one that an earlier
// process left in place. A chunk has one promotion at a time, however many callers ask for it. The
// header is read into a page of its own, together with the payload. Pieces are verified once the
// header is there, and become ready one by one. The arena's own header is written last, when every
// piece is good.
//
// Owns the promotions, and shares them with readers. Its host decides what an outcome means for the
// chunk's other copies. The store's lock protects it, with one exception: reporting a header or a
// piece, and waiting for one, takes the promotion's lock alone.
#pragma once

#include <absl/container/btree_map.h>

#include <memory>
#include <optional>
#include <vector>

#include "tiers/store/chunks.h"
#include "tiers/store/image_verifier.h"
#include "tiers/store/promotions.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class Filler final : public Promotions, private ReadSink {
 public:
  // Learns what becomes of a chunk. All methods are called under the lock.
  class Host {
   public:
    // All reads of a chunk from the tier have ended. `age`: how long the image has been in the
    // tier.
    virtual void OnReadEnded(ChunkSlot slot, LowerTier& from,
                             std::optional<std::chrono::seconds> age) STORE_LOCKED = 0;
    // Every byte was read and is right. Called inside the Change that makes the chunk resident.
    virtual void OnRead(Chunk& chunk, LowerTier& from) STORE_LOCKED = 0;
    // The chunk has become resident. `from`: the tier that it came from; null: it was verified in
    // place.
    virtual void OnFilled(ChunkSlot slot, LowerTier* from) STORE_LOCKED = 0;
    // A read of the chunk failed, so nothing is known of its bytes. Returns whether to read it
    // again later.
    virtual bool IsReadAgain(const Chunk& chunk) STORE_LOCKED = 0;
    // The chunk's copy in G2 is of no use. `keeps_record`: its copy in G3 may be whole, so the
    // record stays. Else the chunk is damaged.
    virtual void OnSpoilt(ChunkSlot slot, bool keeps_record) STORE_LOCKED = 0;
    // A verification is over, well or not.
    virtual void OnVerified(ChunkSlot slot) STORE_LOCKED = 0;
    // The read of a whole image from a tier has ended with `status`.
    virtual void NoteIo(LowerTier& tier, bool write, const absl::Status& status) STORE_LOCKED = 0;

   protected:
    ~Host() = default;
  };

  // All are borrowed.
  Filler(Chunks* chunks, const ImageVerifier* verifier, const StoreDeps& deps, Host* host);

  // ---- Promotions
  void Start(LowerTier& from, const ReadQueue::Requester& requester, ChunkSlot slot,
             MonotonicTime deadline) STORE_LOCKED override;
  Promotion* Find(ChunkSlot slot) STORE_LOCKED override;
  void AwaitAll(Promotion& promotion, StatusCallback ready) STORE_LOCKED override;
  void TellFirst(Promotion::Callbacks told, absl::Status status) STORE_LOCKED override;

  // Begins to verify a chunk that is kUnverified and that somebody wants.
  void Verify(ChunkSlot slot) STORE_LOCKED { VerifyInPlace(slot, /*hurried=*/true); }
  // Tells the chunk's promotion, if it has one, that somebody wants the chunk.
  void Hurry(ChunkSlot slot) STORE_LOCKED;
  // Begins to verify a chunk that nobody wants yet. Other work goes first until somebody waits for
  // it.
  void Sweep(ChunkSlot slot) STORE_LOCKED { VerifyInPlace(slot, /*hurried=*/false); }
  // Starts the reads that may start now. Called by the tier's pump, too.
  void PumpReads(LowerTier& from) STORE_LOCKED;

  // For a reader that pins the chunk. Returns the promotion that brings its bytes; null: the chunk
  // is resident.
  std::shared_ptr<Promotion> Share(ChunkSlot slot) const STORE_LOCKED;
  // For readers, without the store's lock. Calls `ready` once. OK: pieces [first, first + count)
  // may be read. DataLoss: the image is damaged. NotFound: the key of the image is missing. Any
  // other error, mostly Unavailable: the tier failed, or the chunk is later than was promised and
  // may still come.
  void WhenReady(Promotion& promotion, size_t first, size_t count, StatusCallback ready) const;
  // Returns what the chunk's image is; none: a piece or the header page has turned out damaged.
  // `promotion`: as Share returned it.
  std::optional<ImageIdentity> Identity(const Promotion* promotion,
                                        const ExtentList& extents) const;

  size_t size() const STORE_LOCKED { return promotions_.size(); }

 private:
  void OnHeaderRead(Promotion& promotion, HeaderPage page, absl::Status status) override;
  void OnPieceRead(Promotion& promotion, size_t piece, uint64_t bytes,
                   absl::Status status) override;
  void VerifyInPlace(ChunkSlot slot, bool hurried) STORE_LOCKED;
  void OnArenaHeaderRead(ChunkSlot slot, absl::StatusOr<ImageHeader> header);
  void BeginReads(LowerTier& from, Promotion& promotion) STORE_LOCKED;
  void Read(Promotion& promotion);
  void GoOn(Promotion& promotion, Promotion::Next next);
  Executor& ExecutorFor(const Promotion& promotion) const {
    return promotion.hurried() ? *deps_.copy_executor : *deps_.background();
  }
  void WriteArenaHeader(Promotion& promotion);
  LowerTier& EndReading(ChunkSlot slot, bool good) STORE_LOCKED;
  void FinishPromotion(Promotion& promotion, Generation generation);
  void EndFailedPromotion(Promotion& promotion, Promotion::Next end);
  void FinishVerification(const Promotion& promotion, Promotion::Next end);
  void EndFailedVerification(const Promotion& promotion, Promotion::Next end);
  void CountFailure(const Promotion::Failure& failure) STORE_LOCKED;

  Chunks& chunks_;
  const ImageVerifier& verifier_;
  const StoreDeps& deps_;
  Host& host_;
  // Slots do not clash: a promotion holds its chunk's space, so no other chunk gets the slot before
  // it has ended. A tree, since a hash map that grows moves all of its entries under the lock.
  absl::btree_map<ChunkSlot, std::shared_ptr<Promotion>> promotions_ STORE_GUARDED;
};

}  // namespace kvkeep::store_internal
