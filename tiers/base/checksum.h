// Checksums of payloads, always computed from the stored bytes: in their place, or on their way
// there if nobody else writes them. Never from memory that a client can still write.
//
// One XXH3-64 per piece (1 MiB of payload, the last one shorter). They protect against corruption,
// not against an attacker: keys are the engine's digests, placements carry a keyed MAC (image.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tiers/base/units.h"

namespace kvkeep {

uint64_t Xxh3(std::span<const std::byte> bytes);

struct Digest128 {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const Digest128&) const = default;
};
Digest128 Xxh3_128(std::span<const std::byte> bytes);

// XXH3-64 of bytes that come in runs: the same value as Xxh3 over all of them. Not thread-safe.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(Xxh3Stream&&) noexcept;
  Xxh3Stream& operator=(Xxh3Stream&&) noexcept;

  void Append(std::span<const std::byte> bytes);
  uint64_t Digest() const;  // of what was appended so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

constexpr size_t PieceCount(uint64_t payload_bytes) {
  return DivideRoundUp(payload_bytes, kPieceBytes);
}
constexpr size_t PieceSize(uint64_t payload_bytes, size_t piece) {
  const uint64_t begin = piece * kPieceBytes;
  return payload_bytes - begin < kPieceBytes ? payload_bytes - begin : kPieceBytes;
}

// Copies a payload to its place and checksums it in the same pass, in steps that fit the fastest
// cache. The payload arrives in order, in runs of any size; each byte is fetched from memory once.
// Long runs go around the caches (stream_copy.h). Not thread-safe.
class PayloadCopier {
 public:
  PayloadCopier();
  ~PayloadCopier();
  PayloadCopier(PayloadCopier&&) noexcept;
  PayloadCopier& operator=(PayloadCopier&&) noexcept;

  // Copies `source` to `destination` (same size; null: nowhere) and takes its bytes into the
  // checksums.
  // REQUIRES: nobody writes `source` meanwhile, or the copy is thrown away if somebody did.
  void Append(std::byte* destination, std::span<const std::byte> source);
  // The same where others may write `source`: checksums and stores a private copy (or, without
  // memory for that, checksums the copy in its place). Some two thirds as fast.
  void AppendShared(std::byte* destination, std::span<const std::byte> source);
  uint64_t bytes() const { return bytes_; }
  // Returns the checksum of each piece of the appended bytes. Call once, at the end.
  std::vector<uint64_t> Finish();

 private:
  struct State;
  // The source; a private copy, which there is memory for; the copy in its place.
  enum class Checksummed : uint8_t { kSource, kCopy, kPlace };
  void AppendSteps(std::byte* destination, std::span<const std::byte> source, Checksummed what,
                   std::byte* copy);
  void Take(std::span<const std::byte> copied);

  std::unique_ptr<State> state_;  // the running piece
  std::vector<uint64_t> pieces_;
  uint64_t bytes_ = 0;
};

}  // namespace kvkeep
