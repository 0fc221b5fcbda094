// Promotion: an image on its way into G2, from a lower tier; or one that lies there already and is
// being verified, in place. Which of its pieces are read, which may be verified, which are ready,
// and who waits for them.
//
// A piece is verified once the header is there and all of its bytes are; of an encrypted image, the
// pieces of a cipher unit together. It lives until nothing of it is outstanding: no piece that is
// read, no verification, not the header. Core reads, verifies and answers; its lock protects it.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

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

  // Of an image in G2; its header is read first.
  static std::unique_ptr<Promotion> InPlace(const ImageShape& shape);
  // From a tier, for whoever asked first.
  Promotion(LowerTier* from, const ReadQueue::Asker& asker, const ImageShape& shape);

  // Null: in place.
  LowerTier* from() const { return from_; }
  bool in_place() const { return from_ == nullptr; }
  const ReadQueue::Asker& asker() const { return asker_; }
  uint64_t bytes() const { return shape_.blocks().value() * kBlockBytes; }
  size_t pieces() const { return pieces_.size(); }

  // ---- its reads
  // It waits for its turn until it begins. A read without memory for its header ends with that.
  bool waits() const { return waits_; }
  void BeginReads();
  AlignedPage& header_page() { return header_page_; }
  // Either both are there, or it fails. The header's page is no more outstanding.
  void OnHeader(std::unique_ptr<ImageHeader> header, std::unique_ptr<ImageCipher> cipher);
  void OnHeaderFailed(absl::Status why, bool io);
  void OnPieceRead(size_t piece, uint64_t bytes, const absl::Status& status);

  // ---- its verification
  // Those that are to be verified now, the piece among them; they are outstanding from here on.
  std::optional<Pieces> TakeToVerify(size_t piece);
  void OnVerified(const Pieces& pieces, absl::Status status);
  bool all_ready() const { return ready_ == pieces_.size(); }
  const ImageHeader* header() const { return header_.get(); }
  const ImageCipher* cipher() const { return cipher_.get(); }

  // ---- its end
  // The header is on its way into the arena; it is there.
  void BeginHeader() { ++outstanding_; }
  void EndHeader();
  uint32_t outstanding() const { return outstanding_; }
  const absl::Status& failure() const { return failure_; }  // the first one
  bool failed_io() const { return failed_io_; }             // it was the tier, not the bytes
  bool keyless() const { return keyless_; }                 // it was that the key is not there
  bool unauthentic() const { return unauthentic_; }         // a tag did not match

  // ---- who waits for its pieces: for all of those
  bool AreReady(const Pieces& pieces) const;
  // REQUIRES: !AreReady, and it has not failed.
  void Wait(const Pieces& pieces, PieceWaiters::Callback ready);
  // Who waits for nothing more; and how many were looked at.
  std::pair<Callbacks, size_t> TakeReady(const Pieces& became_ready);
  Callbacks TakeWaiters() { return waiters_.TakeAll(); }

 private:
  struct Piece {
    uint64_t bytes_left = 0;  // to read
    bool verifying = false;
    bool ready = false;
  };
  bool IsReady(size_t piece) const { return pieces_[piece].ready; }
  void NoteFailure(absl::Status why);

  LowerTier* const from_;
  const ReadQueue::Asker asker_;
  const ImageShape shape_;
  bool waits_;
  bool header_there_;  // in the arena; who waits for the last piece waits for that too
  AlignedPage header_page_;
  std::unique_ptr<ImageHeader> header_;  // once read, and believed
  std::unique_ptr<ImageCipher> cipher_;  // with the header of an encrypted image
  std::vector<Piece> pieces_;
  size_t ready_ = 0;
  uint32_t outstanding_ = 0;  // pieces to read, verifications, headers
  absl::Status failure_;
  bool failed_io_ = false, keyless_ = false, unauthentic_ = false;
  PieceWaiters waiters_;
};

}  // namespace kvkeep::store_internal
