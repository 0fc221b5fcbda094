// Promotion: an image on its way from a lower tier into G2, or an image in G2 that is being
// verified in place. It knows which of its pieces are read, which may be verified, which are ready,
// and who waits for them.
//
// A piece is verified once the header and all bytes of the piece are there. The pieces of a cipher
// unit of an encrypted image are verified together. A promotion lives until nothing of it is
// outstanding: no read of a piece, no verification, and not the header. Each call that may change
// this returns what to do next (Next). The caller whose Next has an `end` ends the promotion. No
// other caller touches it after its own read or verification has ended.
//
// Thread-safe by a lock of its own. Reporting a piece takes this lock and not the store's, so an
// image of many pieces takes the store's lock as often as an image of one. Filler creates, finds
// and ends promotions under the store's lock. The store's lock may be held when this one is taken,
// never the other way round. Readers share a promotion with Filler, so they wait without the
// store's lock, and it may outlive its end.
#pragma once

#include <absl/status/status.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"
#include "tiers/crypt/image_cipher.h"
#include "tiers/store/aligned_page.h"
#include "tiers/store/lower_tier.h"
#include "tiers/store/piece_waiters.h"
#include "tiers/store/read_queue.h"
#include "tiers/store/shared_wait.h"

namespace kvkeep::store_internal {

class Promotion {
 public:
  // Pieces [first, end) of an image.
  struct Pieces {
    size_t first = 0, end = 0;
  };
  using Callbacks = PieceWaiters::Callbacks;

  // Tells the caller what to do now, with no lock held: hand out each of `verify`, which are
  // outstanding from now on, act on `end`, then call all of `told` with `status`.
  struct Next {
    enum class End : uint8_t {
      kNone,
      kAllReady,  // write the header into the arena (EndHeader); in place: all is done
      kFailed,    // nothing is outstanding
    };
    std::vector<Pieces> verify;
    End end = End::kNone;
    Callbacks told;
    absl::Status status;
  };

  // Verifies the image at `to` in G2; its header is read first.
  static std::unique_ptr<Promotion> InPlace(ChunkSlot slot, const ImageShape& shape, ExtentList to);
  // Reads an image from a tier into the space `to`, for the requester that asked first. Nobody
  // wants the image after `deadline`.
  Promotion(LowerTier* from, const ReadQueue::Requester& requester, ChunkSlot slot,
            const ImageShape& shape, ExtentList to,
            MonotonicTime deadline = MonotonicTime::max());

  // SetUnhurried: only the store itself wants it, and nobody waits. Hurry, from any thread, ends
  // this.
  void SetUnhurried() { hurried_ = false; }
  void Hurry() { hurried_ = true; }
  bool hurried() const { return hurried_; }

  // Null: in place.
  LowerTier* from() const { return from_; }
  bool in_place() const { return from_ == nullptr; }
  const ReadQueue::Requester& requester() const { return requester_; }
  ChunkSlot slot() const { return slot_; }
  const ExtentList& to() const { return to_; }
  MonotonicTime deadline() const { return deadline_; }
  // Returns when waiters are told that it is late, while it goes on; max(): never. It may be later
  // when it is asked again, as long as pieces come (WaitWith).
  MonotonicTime promised() const;
  // Returns whether waiters will be told nothing before `time`.
  bool keeps_until(MonotonicTime time) const;
  // Returns whether waiters will still be told that it is late, by an earlier Promise.
  bool may_be_late(MonotonicTime now) const;
  void Promise(MonotonicTime until);
  // Waits at least as long as the others that share this. Called once at most, before Promise.
  void WaitWith(std::shared_ptr<SharedWait> others);
  // Notes that a piece came, or was verified.
  void NoteCame(const Clock& clock);
  uint64_t bytes() const { return shape_.blocks().value() * kBlockBytes; }
  size_t pieces() const { return shape_.pieces(); }

  // ---- its reads
  // It waits for its turn until BeginReads. Call both under the store's lock.
  bool waits() const { return waits_; }
  void BeginReads(ExpectedHeader expected);
  const ExpectedHeader& expected() const { return expected_; }  // from then on, until EndReads
  // Takes memory for the header. Called next, without the store's lock. Returns false if there is
  // no memory; then only the header is outstanding.
  bool TakeHeaderPage();
  AlignedPage& header_page() { return *header_page_; }  // from then on
  // Note that the header came, with its cipher if it is encrypted, or that it failed. `io`: the
  // tier failed. The header's page is not outstanding after this. Do not call them under the
  // store's lock, since there may be much to verify.
  Next OnHeader(std::unique_ptr<ImageHeader> header, std::unique_ptr<ImageCipher> cipher);
  Next OnHeaderFailed(absl::Status why, bool io);
  // How long the image has been in its tier. NoteAge comes before OnHeader, if at all.
  void NoteAge(std::chrono::seconds age) { age_ = age; }
  std::optional<std::chrono::seconds> age() const { return age_; }
  Next OnPieceRead(size_t piece, uint64_t bytes, const absl::Status& status);

  // ---- its verification
  Next OnVerified(const Pieces& pieces, absl::Status status);
  // For callers that verify, or were told that a piece is ready. Null before OnHeader;
  // the cipher also for a plain image, and after EndReads.
  const ImageHeader* header() const { return header_.get(); }
  const ImageCipher* cipher() const { return cipher_.get(); }

  // ---- its end
  // Notes that the header is in the arena. Returns the callbacks that still wait.
  Callbacks EndHeader();
  struct Failure {
    absl::Status status;       // the first failure
    bool io = false;           // the tier failed; nothing is known of the bytes
    bool keyless = false;      // the key is not in the ring
    bool unauthentic = false;  // a tag did not match
  };
  Failure failure() const;

  // Frees memory that only reads and verifications use. Called when all of them have ended, since
  // readers may keep the promotion for long.
  void EndReads();

  // Waits for all of these pieces and, with the last piece, for the header in the arena. Returns
  // none if it has taken the callback. Otherwise returns the outcome, and the caller keeps the
  // callback. Callers that share the promotion may call it after its end.
  enum class Patience : uint8_t { kToTheEnd, kAsPromised };
  std::optional<absl::Status> Await(const Pieces& pieces, Patience patience, MonotonicTime now,
                                    PieceWaiters::Callback& ready);
  // Returns the callbacks that wait as long as promised (kAsPromised). No others wait so before the
  // next Promise.
  Callbacks TakeImpatient();

 private:
  struct Piece {
    uint64_t bytes_left = 0;  // to read
    bool verifying = false;
    bool ready = false;
  };
  MonotonicTime promised_now() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsReady(size_t piece) const { return pieces_[piece].ready; }
  bool AreReady(const Pieces& pieces) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeToVerify(size_t piece, Next& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteFailure(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status told_failure() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellFailure(Next& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  LowerTier* const from_;
  const ReadQueue::Requester requester_;
  const ChunkSlot slot_;
  const ImageShape shape_;
  const ExtentList to_;
  const MonotonicTime deadline_;
  bool waits_;
  std::atomic<bool> hurried_ = true;
  std::optional<AlignedPage> header_page_;
  ExpectedHeader expected_;
  // Set once, before anything is verified.
  std::optional<std::chrono::seconds> age_;
  std::unique_ptr<ImageHeader> header_;  // once read and checked
  std::unique_ptr<ImageCipher> cipher_;  // with the header of an encrypted image

  mutable Mutex mu_;
  // The header is in the arena; waiters for the last piece wait for this, too.
  bool header_there_ ABSL_GUARDED_BY(mu_);
  std::vector<Piece> pieces_;  // guarded by mu_, as IsReady is asked by waiters_
  size_t ready_ ABSL_GUARDED_BY(mu_) = 0;
  MonotonicTime promised_ ABSL_GUARDED_BY(mu_) = MonotonicTime::max();
  std::shared_ptr<SharedWait> wait_ ABSL_GUARDED_BY(mu_);
  bool told_late_ ABSL_GUARDED_BY(mu_) = false;
  // How many pieces to read, verifications and headers.
  uint32_t outstanding_ ABSL_GUARDED_BY(mu_) = 0;
  Failure failure_ ABSL_GUARDED_BY(mu_);
  PieceWaiters waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::store_internal
