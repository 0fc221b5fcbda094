#include "tiers/base/checksum.h"

#define XXH_STATIC_LINKING_ONLY  // for the size of XXH3_state_t
#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // the plain build of the library is half as fast
#else
#include <xxhash.h>
#endif

#include <algorithm>
#include <cstring>

#include "tiers/base/check.h"
#include "tiers/base/stream_copy.h"
#include "tiers/base/undumped_buffer.h"

namespace kvkeep {
namespace {

// Steps in which a payload is read, checksummed and written out, while the step is in the fastest
// cache. The cache has 32 KiB on AMD's Zen, where prefetching the next step makes this one slower
// by a quarter, and 48 on Intel's, where it pays (`kvkeep-copy-bench`, Zen 4 and Sapphire Rapids).
struct Steps {
  size_t bytes;
  bool fetch_next;
};
constexpr size_t kMostStepBytes = 16 * kKiB;

const Steps& StepsHere() {
  static const Steps steps = [] {
#ifdef __x86_64__
    if (__builtin_cpu_is("amd")) return Steps{.bytes = 8 * kKiB, .fetch_next = false};
#endif
    return Steps{.bytes = kMostStepBytes, .fetch_next = true};
  }();
  return steps;
}

}  // namespace

struct PayloadCopier::State {
  XXH3_state_t hash;
};

uint64_t Xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Digest128 Xxh3_128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.low = hash.low64, .high = hash.high64};
}

struct Xxh3Stream::State {
  XXH3_state_t hash;
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->hash); }
Xxh3Stream::~Xxh3Stream() = default;
Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;

void Xxh3Stream::Append(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->hash, bytes.data(), bytes.size());
}

uint64_t Xxh3Stream::Digest() const { return XXH3_64bits_digest(&state_->hash); }

PayloadCopier::PayloadCopier() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->hash);
}
PayloadCopier::~PayloadCopier() = default;
PayloadCopier::PayloadCopier(PayloadCopier&&) noexcept = default;
PayloadCopier& PayloadCopier::operator=(PayloadCopier&&) noexcept = default;

void PayloadCopier::Append(std::byte* destination, std::span<const std::byte> source) {
  while (destination == nullptr && !source.empty()) {
    const size_t step = std::min<uint64_t>(source.size(), kPieceBytes - bytes_ % kPieceBytes);
    Take(source.first(step));
    source = source.subspan(step);
  }
  AppendSteps(destination, source, Checksummed::kSource, nullptr);
}

void PayloadCopier::AppendShared(std::byte* destination, std::span<const std::byte> source) {
  thread_local const UndumpedBuffer own(kMostStepBytes);
  std::byte* const copy = own.memory().data();
  AppendSteps(destination, source, copy != nullptr ? Checksummed::kCopy : Checksummed::kPlace,
              copy);
}

void PayloadCopier::AppendSteps(std::byte* destination, std::span<const std::byte> source,
                                Checksummed what, std::byte* copy) {
  KVKEEP_CHECK(destination != nullptr || source.empty());
  const Steps& steps = StepsHere();
  while (!source.empty()) {
    const size_t left_in_piece = kPieceBytes - bytes_ % kPieceBytes;
    const size_t step = std::min({source.size(), left_in_piece, steps.bytes});
    if (step == steps.bytes && what != Checksummed::kPlace) {
      std::span<const std::byte> from = source.first(step);
      if (what == Checksummed::kCopy) {
        std::memcpy(copy, from.data(), step);
        from = {copy, step};
      }
      Take(from);
      const bool fetch = steps.fetch_next && source.size() >= 2 * step;
      StreamCopy(destination, from, fetch ? source.data() + step : nullptr);
    } else {
      std::memcpy(destination, source.data(), step);
      Take({destination, step});
    }
    destination += step;
    source = source.subspan(step);
  }
}

void PayloadCopier::Take(std::span<const std::byte> copied) {
  KVKEEP_CHECK(copied.size() <= kPieceBytes - bytes_ % kPieceBytes);
  XXH3_64bits_update(&state_->hash, copied.data(), copied.size());
  bytes_ += copied.size();
  if (bytes_ % kPieceBytes == 0) {
    pieces_.push_back(XXH3_64bits_digest(&state_->hash));
    XXH3_64bits_reset(&state_->hash);
  }
}

std::vector<uint64_t> PayloadCopier::Finish() {
  if (bytes_ % kPieceBytes != 0) pieces_.push_back(XXH3_64bits_digest(&state_->hash));
  KVKEEP_CHECK(pieces_.size() == PieceCount(bytes_));
  return std::move(pieces_);
}

}  // namespace kvkeep
