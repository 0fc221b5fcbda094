#include "tiers/store/handles.h"

#include <cstring>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/store/put_calls.h"
#include "tiers/store/reads.h"

namespace kvkeep {

// ---------------------------------------------------------------- ChunkReader

ChunkReader::ChunkReader(ChunkReader&& other) noexcept { *this = std::move(other); }

ChunkReader& ChunkReader::operator=(ChunkReader&& other) noexcept {
  if (reads_ != nullptr) reads_->Unpin(ChunkSlot(slot_), kind_);
  reads_ = std::exchange(other.reads_, nullptr);
  slot_ = other.slot_;
  kind_ = other.kind_;
  promotion_ = std::move(other.promotion_);
  shape_ = other.shape_;
  extents_ = std::move(other.extents_);
  return *this;
}

ChunkReader::~ChunkReader() {
  if (reads_ != nullptr) reads_->Unpin(ChunkSlot(slot_), kind_);
}

void ChunkReader::WhenReady(size_t first, size_t count,
                            absl::AnyInvocable<void(absl::Status) &&> ready) {
  KVKEEP_CHECK(first <= shape_.pieces() && count <= shape_.pieces() - first);
  if (promotion_ == nullptr) return std::move(ready)(absl::OkStatus());
  // A copy, as `ready` may destroy this reader.
  const std::shared_ptr<store_internal::Promotion> promotion = promotion_;
  reads_->filler().WhenReady(*promotion, first, count, std::move(ready));
}

std::span<const std::byte> ChunkReader::Payload(uint64_t offset, uint64_t bytes) const {
  KVKEEP_CHECK(offset <= shape_.payload_bytes && bytes <= shape_.payload_bytes - offset);
  return reads_->chunks().ImageMemory(extents_, kHeaderBytes + offset, bytes);
}

std::vector<uint64_t> ChunkReader::PieceChecksums() const {
  std::optional<ImageIdentity> identity = Identity();
  if (!identity.has_value()) return {};
  return std::move(identity->piece_checksums);
}

std::optional<ImageIdentity> ChunkReader::Identity() const {
  return reads_->filler().Identity(promotion_.get(), extents_);
}

std::span<const std::byte> ChunkReader::Image(uint64_t offset, uint64_t bytes) const {
  const uint64_t end = shape_.used_bytes();
  KVKEEP_CHECK(offset >= kHeaderBytes && offset <= end && bytes <= end - offset);
  return reads_->chunks().ImageMemory(extents_, offset, bytes);
}

std::string ChunkReader::Metadata() const {
  std::string metadata;
  while (metadata.size() < shape_.tail_bytes) {
    const auto run = reads_->chunks().ImageMemory(extents_, shape_.tail_offset() + metadata.size(),
                                                  shape_.tail_bytes - metadata.size());
    metadata.append(reinterpret_cast<const char*>(run.data()), run.size());
  }
  return metadata;
}

// ---------------------------------------------------------------- Reservation

Reservation::Reservation(Reservation&& other) noexcept { *this = std::move(other); }

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  Abort();
  puts_ = std::exchange(other.puts_, nullptr);
  id_ = other.id_;
  request_ = std::move(other.request_);
  generation_ = other.generation_;
  extents_ = std::move(other.extents_);
  copier_ = std::move(other.copier_);
  filled_ = std::move(other.filled_);
  return *this;
}

Reservation::~Reservation() { Abort(); }

void Reservation::Abort() {
  if (Planted(Canary::kVisibleBeforeSealed)) puts_ = nullptr;
  if (puts_ != nullptr) std::exchange(puts_, nullptr)->Abort(id_);
}

std::span<std::byte> Reservation::ImageAt(uint64_t offset, uint64_t bytes) const {
  return puts_->chunks().ImageMemory(extents_, offset, bytes);
}

void Reservation::Append(std::span<const std::byte> bytes) {
  KVKEEP_CHECK(copier_.bytes() + bytes.size() <= shape().payload_bytes);
  CopyTo(0, bytes, &copier_, &PayloadCopier::Append);
}

void Reservation::CopyTo(uint64_t begin, std::span<const std::byte> bytes, PayloadCopier* copier,
                         AppendBy append) {
  while (!bytes.empty()) {
    const auto to = ImageAt(kHeaderBytes + begin + copier->bytes(), bytes.size());
    (copier->*append)(to.data(), bytes.first(to.size()));
    bytes = bytes.subspan(to.size());
  }
}

absl::Status Reservation::FillPiece(size_t piece, ReadPayload read) {
  KVKEEP_CHECK(piece < filled_.size() && !filled_[piece].filled);
  const uint64_t begin = piece * kPieceBytes;
  const uint64_t bytes = PieceSize(shape().payload_bytes, piece);
  PayloadCopier copier;
  absl::Status status = read(begin, bytes, [&](std::span<const std::byte> run) {
    KVKEEP_CHECK(run.size() <= bytes - copier.bytes());
    CopyTo(begin, run, &copier, &PayloadCopier::AppendShared);
  });
  if (!status.ok()) return status;
  KVKEEP_CHECK(copier.bytes() == bytes);
  filled_[piece] = {.checksum = copier.Finish().front(), .filled = true};
  return absl::OkStatus();
}

std::span<std::byte> Reservation::PayloadPlace(uint64_t offset, uint64_t bytes) {
  KVKEEP_CHECK(offset <= shape().payload_bytes && bytes <= shape().payload_bytes - offset);
  return ImageAt(kHeaderBytes + offset, bytes);
}

void Reservation::ChecksumPiece(size_t piece) {
  KVKEEP_CHECK(piece < filled_.size() && !filled_[piece].filled);
  const uint64_t begin = piece * kPieceBytes;
  filled_[piece] = {.checksum = Checksum(begin, begin + PieceSize(shape().payload_bytes, piece)),
                    .filled = true};
}

uint64_t Reservation::PieceChecksum(size_t piece) const {
  KVKEEP_CHECK(piece < filled_.size() && filled_[piece].filled);
  return filled_[piece].checksum;
}

uint64_t Reservation::Checksum(uint64_t begin, uint64_t end) const {
  Xxh3Stream checksum;
  while (begin < end) {
    const auto run = ImageAt(kHeaderBytes + begin, end - begin);
    checksum.Append(run);
    begin += run.size();
  }
  return checksum.Digest();
}

uint64_t Reservation::PayloadChecksum() const { return Checksum(0, shape().payload_bytes); }

absl::StatusOr<SealOutcome> Reservation::Seal(std::span<const std::byte> metadata) {
  KVKEEP_CHECK(metadata.size() == shape().tail_bytes);
  std::vector<uint64_t> checksums;
  if (copier_.bytes() > 0) {
    KVKEEP_CHECK(copier_.bytes() == shape().payload_bytes);
    checksums = copier_.Finish();
  } else {
    for (const FilledPiece& piece : filled_) {
      KVKEEP_CHECK(piece.filled);
      checksums.push_back(piece.checksum);
    }
  }
  const auto fill = [this](uint64_t begin, uint64_t end, const std::byte* from) {
    while (begin < end) {
      const std::span<std::byte> to = ImageAt(begin, end - begin);
      if (from != nullptr) {
        std::memcpy(to.data(), from, to.size());
        from += to.size();
      } else {
        std::memset(to.data(), 0, to.size());
      }
      begin += to.size();
    }
  };
  // Clears bytes behind the payload, so that no bytes of an earlier owner stay readable there.
  const uint64_t payload_end = kHeaderBytes + uint64_t{shape().payload_bytes};
  fill(payload_end, shape().blocks().value() * kBlockBytes, nullptr);
  if (!metadata.empty()) {
    fill(shape().tail_offset(), shape().tail_offset() + metadata.size(), metadata.data());
  }
  const ImageIdentity identity{.id = {request_.ns, request_.key, request_.part},
                               .shape = shape(),
                               .created_unix_us = puts_->deps().clock->UnixMicros(),
                               .tail_checksum = Xxh3(metadata),
                               .piece_checksums = std::move(checksums)};
  const store_internal::Chunks& chunks = puts_->chunks();
  EncodeHeader({identity, chunks.PlacementOf(generation_, extents_)}, puts_->deps().mac_key,
               chunks.HeaderInArena(extents_));
  if (Planted(Canary::kVisibleBeforeSealed)) {
    puts_ = nullptr;
    return SealOutcome::kStored;
  }
  return std::exchange(puts_, nullptr)->Seal(id_, request_);
}

}  // namespace kvkeep
