#include "tiers/remote/chunk_summary.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

constexpr int kProbes = 7;
constexpr int kProbeBits = 9;  // of a bit's number in a block
static_assert(1 << kProbeBits == 8 * ChunkSummary::kBlockBytes && kProbes * kProbeBits < 64);

// Where a chunk's bits are.
struct Probes {
  Probes(uint64_t hash, size_t blocks)
      : first_byte(((hash >> 32) * blocks >> 32) * ChunkSummary::kBlockBytes),
        numbers((hash ^ hash >> 32) * 0x9E3779B97F4A7C15) {}
  size_t byte(int i) const { return first_byte + number(i) / 8; }
  uint8_t mask(int i) const { return static_cast<uint8_t>(1 << number(i) % 8); }

 private:
  size_t number(int i) const { return numbers >> (kProbeBits * i) & ((1 << kProbeBits) - 1); }

  size_t first_byte;
  uint64_t numbers;
};

}  // namespace

NameHash::NameHash(const Uuid& place) : hash_{LoadAt<uint64_t>(AsBytes(place.view()).data())} {}

ChunkSummary::ChunkSummary(uint32_t level, std::string bits)
    : level_(level), bits_(std::move(bits)) {}

absl::StatusOr<ChunkSummary> ChunkSummary::Parse(uint32_t level, std::string bits) {
  if (level > kMostLevel) {
    return absl::InvalidArgumentError(absl::StrCat("level: at most ", kMostLevel));
  }
  if (bits.empty() || bits.size() % kBlockBytes != 0 || bits.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("bits: must have blocks of ", kBlockBytes, " bytes, up to ", kMostBytes));
  }
  return ChunkSummary(level, std::move(bits));
}

bool ChunkSummary::MayHave(uint64_t hash) const {
  const Probes probes(hash, bits_.size() / kBlockBytes);
  for (int i = 0; i < kProbes; ++i) {
    if ((static_cast<uint8_t>(bits_[probes.byte(i)]) & probes.mask(i)) == 0) return false;
  }
  return true;
}

void ChunkSummary::Add(uint64_t hash) {
  const Probes probes(hash, bits_.size() / kBlockBytes);
  for (int i = 0; i < kProbes; ++i) {
    char& byte = bits_[probes.byte(i)];
    byte = static_cast<char>(static_cast<uint8_t>(byte) | probes.mask(i));
  }
}

bool ChunkSummary::LookAt(uint64_t hash, size_t looked, Answer* answer) const {
  if (!Samples(hash)) return true;
  ++answer->sampled;
  if (!MayHave(hash)) return false;
  ++answer->there;
  answer->reach = looked;
  return true;
}

ChunkSummary::Answer ChunkSummary::LookFromFront(std::span<const uint64_t> hashes) const {
  Answer answer;
  for (size_t i = 0; i < hashes.size() && LookAt(hashes[i], i + 1, &answer);) ++i;
  return answer;
}

ChunkSummary::Answer ChunkSummary::LookFromBack(std::span<const uint64_t> hashes) const {
  Answer answer;
  const size_t all = hashes.size();
  for (size_t i = 0; i < all && LookAt(hashes[all - 1 - i], i + 1, &answer);) ++i;
  return answer;
}

SummaryBuilder::SummaryBuilder(size_t most_bytes)
    : most_chunks_(most_bytes / ChunkSummary::kBlockBytes * ChunkSummary::kBlockBytes * 8 /
                   ChunkSummary::kBitsAChunk) {
  KVKEEP_CHECK(most_chunks_ > 0 && most_bytes <= ChunkSummary::kMostBytes);
}

void SummaryBuilder::Add(uint64_t hash) {
  if (!ChunkSummary::IsSampled(hash, level_)) return;
  hashes_.push_back(hash);
  if (hashes_.size() > most_chunks_ && level_ < ChunkSummary::kMostLevel) Thin();
}

void SummaryBuilder::Thin() {
  ++level_;
  std::erase_if(hashes_, [this](uint64_t hash) { return !ChunkSummary::IsSampled(hash, level_); });
}

ChunkSummary SummaryBuilder::Build() {
  const size_t bits = std::max<size_t>(hashes_.size() * ChunkSummary::kBitsAChunk, 1);
  ChunkSummary summary(
      level_, std::string(RoundUp(DivideRoundUp(bits, 8), ChunkSummary::kBlockBytes), '\0'));
  for (const uint64_t hash : hashes_) summary.Add(hash);
  return summary;
}

}  // namespace kvkeep
