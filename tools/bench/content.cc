#include "tools/bench/content.h"

#include <cstring>

#include "tools/kvkeep/generator.h"

namespace kvkeep::bench {
namespace {

constexpr size_t kPayloadAt = 16;  // after 16 bytes that look like a digest
constexpr size_t kSequenceAt = 24;

}  // namespace

ChunkKey MakeKey(uint64_t seed, uint64_t sequence, uint64_t payload) {
  ChunkKey key;
  tools::GeneratePayload(~seed, sequence, std::as_writable_bytes(std::span(key.bytes)));
  std::memcpy(key.bytes.data() + kPayloadAt, &payload, sizeof(payload));
  std::memcpy(key.bytes.data() + kSequenceAt, &sequence, sizeof(sequence));
  return key;
}

uint64_t PayloadOf(const ChunkKey& key) {
  uint64_t payload = 0;
  std::memcpy(&payload, key.bytes.data() + kPayloadAt, sizeof(payload));
  return payload;
}

void FillPayload(uint64_t seed, uint64_t payload, std::span<std::byte> out) {
  tools::GeneratePayload(seed, payload, out);
}

uint64_t CountWrong(uint64_t seed, const ChunkKey& key, std::span<const std::byte> got,
                    uint64_t offset) {
  return tools::CountWrongBytes(seed, PayloadOf(key), got, offset);
}

}  // namespace kvkeep::bench
