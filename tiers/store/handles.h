// ChunkReader and Reservation: handles of one chunk, for a caller of the store that reads or writes
// its bytes. The caller does this without the store's lock. Both must be destroyed before the
// store.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/checksum.h"
#include "tiers/base/extent.h"
#include "tiers/base/image.h"
#include "tiers/store/types.h"

namespace kvkeep {

class Store;
namespace store_internal {
class PutCalls;
class Promotion;
class Reads;
}

enum class ReadOutcome : uint8_t { kHit, kMiss, kBusy };
// The reader of a chunk: its tenant, another one, or another node of the fleet.
enum class ReaderKind : uint8_t { kOwner, kOtherTenant, kPeer };

// A pinned chunk: its place does not move and its bytes do not change while this lives. Move-only;
// unpins when destroyed. One thread at a time.
class ChunkReader {
 public:
  ChunkReader() = default;  // holds nothing
  ChunkReader(ChunkReader&& other) noexcept;
  ChunkReader& operator=(ChunkReader&& other) noexcept;
  ~ChunkReader();

  explicit operator bool() const { return reads_ != nullptr; }
  const ImageShape& shape() const { return shape_; }
  const ExtentList& extents() const { return extents_; }  // of the image, in the arena
  // Calls `ready` once, perhaps inside this call. OK: pieces [first, first + count) are in place
  // and verified; with the last piece, the image's header and tail, too. DataLoss: the chunk was
  // damaged and is dropped. NotFound: the key of the image is missing. Any other error, mostly
  // Unavailable: the tier failed, or the chunk is later than was promised and may still come.
  void WhenReady(size_t first, size_t count, absl::AnyInvocable<void(absl::Status) &&> ready);
  // Returns the payload from `offset`, as far as it lies in one run of memory, at most `bytes`.
  // REQUIRES: WhenReady said OK for the pieces touched.
  std::span<const std::byte> Payload(uint64_t offset, uint64_t bytes) const;
  // Returns the checksums of all pieces. Empty: a piece, or the header page in memory, has turned
  // out damaged since; do not serve the chunk. REQUIRES: WhenReady said OK for any piece.
  std::vector<uint64_t> PieceChecksums() const;
  // Returns the identity of the image, in plain. None: as for PieceChecksums. REQUIRES: WhenReady
  // said OK for any piece.
  std::optional<ImageIdentity> Identity() const;
  // Returns bytes of the image in place, from `offset` on, as far as they lie in one run of memory,
  // at most `bytes`. REQUIRES: they are behind the header page and before used_bytes() (no checksum
  // covers bytes from there on); WhenReady said OK for their pieces.
  std::span<const std::byte> Image(uint64_t offset, uint64_t bytes) const;
  // Returns the metadata tail. REQUIRES: WhenReady said OK for the last piece.
  std::string Metadata() const;

 private:
  friend class store_internal::Reads;
  store_internal::Reads* reads_ = nullptr;
  uint32_t slot_ = 0;
  ReaderKind kind_ = ReaderKind::kOwner;
  // Brings the chunk's bytes. Null: the chunk was resident when it was pinned, and stays so.
  std::shared_ptr<store_internal::Promotion> promotion_;
  ImageShape shape_;
  ExtentList extents_;
};

enum class SealOutcome : uint8_t { kStored, kPresent };

// Space for one chunk in G2. Nobody finds the chunk before Seal. Move-only; aborts when destroyed
// unsealed. One thread at a time.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  explicit operator bool() const { return puts_ != nullptr; }
  const ImageShape& shape() const { return request_.shape; }
  // Returns where the image is to lie in the arena. A caller that writes the payload there itself
  // calls ChecksumPiece afterwards.
  const ExtentList& extents() const { return extents_; }
  uint64_t appended_bytes() const { return copier_.bytes(); }
  // Copies the next payload bytes into place and checksums them.
  // REQUIRES: not more than shape().payload_bytes in all; nobody writes `bytes` meanwhile.
  void Append(std::span<const std::byte> bytes);
  // The other way to fill a payload: piece by piece, in any order, several pieces at once on
  // different threads. `read` passes the payload's bytes from `offset` on to `give`, in order, in
  // runs of any size. A run is valid while `give` runs; others may write to it meanwhile. Returns
  // the error of `read`; after an error the reservation can only be aborted. Call it once for each
  // piece, and not together with Append.
  using GivePayload = absl::FunctionRef<void(std::span<const std::byte> run)>;
  using ReadPayload =
      absl::FunctionRef<absl::Status(uint64_t offset, uint64_t bytes, GivePayload give)>;
  absl::Status FillPiece(size_t piece, ReadPayload read);
  // Returns the place of the payload from `offset`, as far as it lies in one run of memory, at most
  // `bytes`, for a caller that writes there itself: before ChecksumPiece, and never after Seal.
  // REQUIRES: offset + bytes <= shape().payload_bytes.
  std::span<std::byte> PayloadPlace(uint64_t offset, uint64_t bytes);
  // Fills a piece whose bytes are in their place already: checksums them.
  void ChecksumPiece(size_t piece);
  // Returns XXH3-64 of the piece as it was filled. REQUIRES: it is filled, not by Append.
  uint64_t PieceChecksum(size_t piece) const;
  // Returns XXH3-64 of the whole payload in place. REQUIRES: every piece is filled.
  uint64_t PayloadChecksum() const;
  // Publishes the chunk. `metadata` has shape().tail_bytes bytes. FailedPrecondition: the session
  // was closed meanwhile, and the space is given back. REQUIRES: the whole payload was appended, or
  // every piece is filled.
  absl::StatusOr<SealOutcome> Seal(std::span<const std::byte> metadata);
  void Abort();

 private:
  friend class store_internal::PutCalls;
  friend class Store;
  struct FilledPiece {
    uint64_t checksum = 0;
    bool filled = false;
  };
  std::span<std::byte> ImageAt(uint64_t offset, uint64_t bytes) const;
  // Copies `bytes` to the payload from `begin` on, by a method of `copier`.
  using AppendBy = void (PayloadCopier::*)(std::byte*, std::span<const std::byte>);
  void CopyTo(uint64_t begin, std::span<const std::byte> bytes, PayloadCopier* copier,
              AppendBy append);
  // Returns XXH3-64 of payload bytes in place.
  uint64_t Checksum(uint64_t begin, uint64_t end) const;
  store_internal::PutCalls* puts_ = nullptr;
  uint64_t id_ = 0;
  PutRequest request_;
  Generation generation_;
  ExtentList extents_;
  PayloadCopier copier_;
  std::vector<FilledPiece> filled_;  // by piece, sized at Reserve
};

struct ReserveResult {
  enum class Outcome : uint8_t { kReserved, kPresent, kRejected } outcome = Outcome::kRejected;
  RejectReason reason = RejectReason::kNone;
  std::string message;     // names the limit and its value
  bool over_rate = false;  // the limit is a rate (TenantOptions), which refuses other chunks, too
  // Over the limit of reserved bytes, and not rejected: the caller asks again
  // (PutRequest::asks_again).
  bool ask_again = false;
  Reservation reservation;
};

struct ReadResult {
  ReadOutcome outcome = ReadOutcome::kMiss;
  bool from_g3 = false;  // a promotion brings the chunk into G2, from this call or an earlier one
  ChunkReader reader;
};

}  // namespace kvkeep
