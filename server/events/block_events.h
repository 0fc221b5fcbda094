// BlockEvent: tells a router of a chunk's blocks, in terms of its tokens. Also the messages that
// carry such events, in the two forms that routers know.
//
// A block is named by 64 bits. A chunk's last block has the first 8 bytes of the chunk's key (big
// endian), each block before it one less than the next, so a child knows its parent's last block
// from the parent's key alone.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tiers/base/image.h"
#include "tiers/base/key.h"

namespace kvkeep {

struct BlockEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared } kind = Kind::kCleared;
  Tier tier = Tier::kG2;
  std::vector<uint64_t> blocks;  // in prefix order
  // Set for stored blocks only.
  std::optional<uint64_t> parent;
  std::vector<uint32_t> token_ids;
  uint32_t block_size = 0;
  std::string lora_name;
};

// The most blocks of a chunk if its number of tokens is not known.
inline constexpr uint64_t kMostBlocks = 1024;

// Returns the event that metadata describes for a chunk; none if it is not a ChunkMetadata, or
// makes no sense, such as one that names more than `most_blocks` blocks.
std::optional<BlockEvent> BlocksOf(const ChunkKey& key, absl::string_view metadata,
                                   uint64_t most_blocks = kMostBlocks);
// The name of the chunk's last block.
uint64_t LastBlock(const ChunkKey& key);

// kVllm: events are maps, G2 is CPU and G3 is STORAGE with locality LOCAL. kSglang: events are
// arrays, G2 is CPU_PINNED and G3 is DISK.
enum class EventForm : uint8_t { kVllm, kSglang };

// One message: [time, events, rank], in MessagePack.
std::string EncodeEvents(EventForm form, double unix_seconds,
                         const std::vector<BlockEvent>& events);

}  // namespace kvkeep
