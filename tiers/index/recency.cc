#include "tiers/index/recency.h"

namespace kvkeep {
namespace {

constexpr size_t kKeyBytes = sizeof(uint64_t);
constexpr size_t kMostValueBytes = sizeof(uint64_t);

size_t ValueBytes(uint64_t recency) {
  size_t bytes = 1;
  while (bytes < kMostValueBytes && recency >> (8 * bytes) != 0) ++bytes;
  return bytes;
}

}  // namespace

std::string EncodeRecencyKey(CommitSequence sequence) {
  std::string key(kKeyBytes, '\0');
  for (size_t i = 0; i < kKeyBytes; ++i) {
    key[i] = static_cast<char>(sequence.value() >> (8 * (kKeyBytes - 1 - i)) & 0xff);
  }
  return key;
}

std::string EncodeRecencyValue(uint64_t recency) {
  std::string value(ValueBytes(recency), '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(recency >> (8 * i) & 0xff);
  return value;
}

std::optional<RecencyDelta> DecodeRecency(absl::string_view key, absl::string_view value) {
  if (key.size() != kKeyBytes || value.empty() || value.size() > kMostValueBytes) {
    return std::nullopt;
  }
  uint64_t sequence = 0, recency = 0;
  for (const char byte : key) sequence = sequence << 8 | static_cast<uint8_t>(byte);
  for (size_t i = value.size(); i-- > 0;) recency = recency << 8 | static_cast<uint8_t>(value[i]);
  return RecencyDelta{CommitSequence(sequence), recency};
}

uint64_t EncodedBytes(const RecencyDelta& delta) {
  return kKeyBytes + (delta.recency.has_value() ? ValueBytes(*delta.recency) : 0);
}

}  // namespace kvkeep
