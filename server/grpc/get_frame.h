// One GetFrame, encoded by hand so that its payload need not be copied: all fields but the
// payload's bytes go into one string that ends with the payload's tag and length; the payload
// follows as it lies in memory. Together they are the message that the generated code would write.
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

std::string EncodeGetFrameHeader(const GetFrameHeader& header);

}  // namespace kvkeep
