// A frame of a get, as the daemon sent it: v1.GetFrame with its payload where it lies. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvkeep::client {

struct ChunkFrame {
  // v1.ChunkStatus; any other value stands for a miss.
  enum Status : uint32_t { kHit = 1, kMiss = 2, kCorrupt = 3, kBusy = 4 };

  uint32_t key_index = 0;
  uint32_t part_index = 0;
  uint32_t status = 0;
  uint64_t offset = 0;
  uint64_t payload_bytes = 0;
  bool last = false;
  std::vector<uint64_t> piece_checksums;
  std::string metadata;
  std::vector<std::span<const std::byte>> payload;  // in order
  uint64_t payload_size = 0;                        // sum of them
};

}  // namespace kvkeep::client
