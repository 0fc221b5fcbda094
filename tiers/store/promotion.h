// Promotion: an image on its way into G2, from a lower tier; or one that lies there already and is
// being verified, in place. Which of its pieces are read, which may be verified, which are ready,
// and who waits for them.
//
// A piece is verified once the header is there and all of its bytes are; of an encrypted image, the
// pieces of a cipher unit together. It lives until nothing of it is outstanding: no piece that is
// read, no verification, not the header. Each call that may change that says what is to be done
// next (Next); whoever is told of the end ends it, and nobody else touches it after what he had
// outstanding has ended.
//
// Thread-safe by a lock of its own: what becomes of a piece takes that one and not the store's, so
// the store's lock is taken as often for an image of many pieces as for one of one. Core owns it,
// and creates, finds and ends it under the store's lock, which may be held when this one is taken,
// never the other way round.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/crypt/image_cipher.h"
#include "tiers/store/aligned_page.h"
#include "tiers/store/piece_waiters.h"
#include "tiers/store/read_queue.h"

namespace kvkeep::store_internal {

class LowerTier;

class Promotion {
 public:
  // Pieces [first, end) of an image.
  struct Pieces {
    size_t first = 0, end = 0;
  };
  using Callbacks = PieceWaiters::Callbacks;

  // What the caller does now, with no lock held: hand out each of `verify`, which is outstanding
  // from here on; see to the end; then call all of `told` with `status`.
  struct Next {
    enum class End : uint8_t {
      kNone,
      kAllReady,  // the header is to be written into the arena (EndHeader); in place: all is done
      kFailed,    // nothing is outstanding
    };
    std::vector<Pieces> verify;
    End end = End::kNone;
    Callbacks told;
    absl::Status status;
  };

  // Of an image in G2, `to`; its header is read first.
  static std::unique_ptr<Promotion> InPlace(ChunkSlot slot, const ImageShape& shape, ExtentList to);
  // From a tier into that space, for whoever asked first.
  Promotion(LowerTier* from, const ReadQueue::Requester& requester, ChunkSlot slot,
            const ImageShape& shape, ExtentList to);

  // Null: in place.
  LowerTier* from() const { return from_; }
  bool in_place() const { return from_ == nullptr; }
  const ReadQueue::Requester& requester() const { return requester_; }
  ChunkSlot slot() const { return slot_; }
  const ExtentList& to() const { return to_; }
  uint64_t bytes() const { return shape_.blocks().value() * kBlockBytes; }
  size_t pieces() const { return shape_.pieces(); }

  // ---- its reads
  // It waits for its turn until it begins. A read without memory for its header ends with that.
  // Both under the store's lock.
  bool waits() const { return waits_; }
  void BeginReads();
  AlignedPage& header_page() { return header_page_; }
  // Either both are there, or it fails. The header's page is no more outstanding. Not under the
  // store's lock: there may be much to verify.
  Next OnHeader(std::unique_ptr<ImageHeader> header, std::unique_ptr<ImageCipher> cipher);
  Next OnHeaderFailed(absl::Status why, bool io);
  Next OnPieceRead(size_t piece, uint64_t bytes, const absl::Status& status);

  // ---- its verification
  Next OnVerified(const Pieces& pieces, absl::Status status);
  // For who verifies, and who was told of a piece. Null before OnHeader.
  const ImageHeader* header() const { return header_.get(); }
  const ImageCipher* cipher() const { return cipher_.get(); }

  // ---- its end
  // The header is in the arena. Returns who still waited.
  Callbacks EndHeader();
  struct Failure {
    absl::Status status;       // the first one
    bool io = false;           // it was the tier, not the bytes
    bool keyless = false;      // it was that the key is not there
    bool unauthentic = false;  // a tag did not match
  };
  Failure failure() const;

  // For all of those pieces; with the last one, for the header in the arena as well. Nothing: it
  // has taken the callback. Else how it is, and the callback is the caller's.
  std::optional<absl::Status> Await(const Pieces& pieces, PieceWaiters::Callback& ready);

 private:
  struct Piece {
    uint64_t bytes_left = 0;  // to read
    bool verifying = false;
    bool ready = false;
  };
  bool IsReady(size_t piece) const { return pieces_[piece].ready; }
  bool AreReady(const Pieces& pieces) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeToVerify(size_t piece, Next& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteFailure(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellFailure(Next& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  LowerTier* const from_;
  const ReadQueue::Requester requester_;
  const ChunkSlot slot_;
  const ImageShape shape_;
  const ExtentList to_;
  bool waits_;
  AlignedPage header_page_;
  // Set once, before anything is verified.
  std::unique_ptr<ImageHeader> header_;  // once read, and believed
  std::unique_ptr<ImageCipher> cipher_;  // with the header of an encrypted image

  mutable Mutex mu_;
  // In the arena; who waits for the last piece waits for that too.
  bool header_there_ ABSL_GUARDED_BY(mu_);
  std::vector<Piece> pieces_;  // guarded by mu_, as IsReady is asked by waiters_
  size_t ready_ ABSL_GUARDED_BY(mu_) = 0;
  // Pieces to read, verifications, headers.
  uint32_t outstanding_ ABSL_GUARDED_BY(mu_) = 0;
  Failure failure_ ABSL_GUARDED_BY(mu_);
  PieceWaiters waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::store_internal
