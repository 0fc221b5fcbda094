// ChunkReader and Reservation: what a caller of the store holds while it reads or writes the bytes
// of one chunk, which it does without the store's lock. Both must be gone before the store is.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
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
class MetadataReads;
}

enum class ReadOutcome : uint8_t { kHit, kMiss, kBusy };

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
  // The payload from `offset` as far as it lies in one run of memory, at most `bytes`.
  // REQUIRES: WhenReady said OK for the pieces touched.
  std::span<const std::byte> Payload(uint64_t offset, uint64_t bytes) const;
  // REQUIRES: WhenReady said OK for any piece. Empty: another piece, or the header page in memory,
  // turned out damaged since; the chunk is not to be served.
  std::vector<uint64_t> PieceChecksums() const;
  // REQUIRES: WhenReady said OK for the last piece.
  std::string Metadata() const;

 private:
  friend class store_internal::Reads;
  friend class store_internal::MetadataReads;
  store_internal::Reads* reads_ = nullptr;
  uint32_t slot_ = 0;
  bool lent_ = false;      // to another tenant than the chunk's
  // What its bytes come by. Null: it was resident when it was pinned, and so it stays.
  std::shared_ptr<store_internal::Promotion> promotion_;
  ImageShape shape_;
  ExtentList extents_;
};

enum class SealOutcome : uint8_t { kStored, kPresent };

// Space for one chunk in G2, invisible, private to its session. Move-only; aborts when destroyed
// unsealed. One thread at a time.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  explicit operator bool() const { return puts_ != nullptr; }
  const ImageShape& shape() const { return request_.shape; }
  // Where the image is to lie in the arena: whoever writes the payload there itself calls
  // ChecksumPiece afterwards.
  const ExtentList& extents() const { return extents_; }
  uint64_t appended_bytes() const { return copier_.bytes(); }
  // Copies the next payload bytes into place and checksums them.
  // REQUIRES: not more than shape().payload_bytes in all; nobody writes `bytes` meanwhile.
  void Append(std::span<const std::byte> bytes);
  // The other way to fill a payload: piece by piece, in any order, several at once on different
  // threads. `read` gives the payload's bytes from `offset` on, in order, in runs of any size, each
  // good while it is given; others may write them. Its error is returned; the reservation can only
  // be aborted after one. Each piece once; not together with Append.
  using GivePayload = absl::FunctionRef<void(std::span<const std::byte> run)>;
  using ReadPayload =
      absl::FunctionRef<absl::Status(uint64_t offset, uint64_t bytes, GivePayload give)>;
  absl::Status FillPiece(size_t piece, ReadPayload read);
  // The same for a piece that is in its place.
  void ChecksumPiece(size_t piece);
  // XXH3-64 of the whole payload in place. REQUIRES: every piece filled.
  uint64_t PayloadChecksum() const;
  // Publishes the chunk. `metadata` has shape().tail_bytes. FailedPrecondition when the session was
  // closed meanwhile (the space is given back). REQUIRES: the whole payload was appended, or every
  // piece filled.
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
  // Copies what comes next by `copier`, with one of its Append, for the payload from `begin` on.
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
  bool over_rate = false;  // the limit is a rate (TenantOptions): other chunks are refused as well
  bool ask_again = false;  // PutRequest::asks_again: not rejected, over the limit of reserved bytes
  Reservation reservation;
};

struct ReadResult {
  ReadOutcome outcome = ReadOutcome::kMiss;
  bool from_g3 = false;  // a promotion was needed, or it is on its way into G2
  ChunkReader reader;
};

}  // namespace kvkeep
