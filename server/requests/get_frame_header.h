// GetFrameHeader: all of a GetFrame but its payload, however it is sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvkeep/v1/kvkeep.pb.h"

namespace kvkeep {

struct GetFrameHeader {
  uint32_t key_index = 0;
  uint32_t part_index = 0;
  v1::ChunkStatus status = v1::CHUNK_STATUS_UNSPECIFIED;
  uint64_t offset = 0;
  uint64_t chunk_payload_bytes = 0;  // of the whole chunk
  bool last = false;
  std::vector<uint64_t> piece_checksums;
  std::string metadata;
  uint64_t frame_payload_bytes = 0;  // of this frame; 0: the field is left out
};

}  // namespace kvkeep
