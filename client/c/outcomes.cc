#include "client/c/outcomes.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>

namespace kvkeep::client {
namespace {

uint32_t CodeOf(GetStatus status) {
  switch (status) {
    case GetStatus::kHit:
      return KVKEEP_GET_HIT;
    case GetStatus::kMiss:
      return KVKEEP_GET_MISS;
    case GetStatus::kCorrupt:
      return KVKEEP_GET_CORRUPT;
    case GetStatus::kBusy:
      return KVKEEP_GET_BUSY;
    case GetStatus::kTooSmall:
      return KVKEEP_GET_TOO_SMALL;
    case GetStatus::kUnfinished:
      break;
  }
  return KVKEEP_GET_UNFINISHED;
}

uint32_t CodeOf(PutStatus status) {
  switch (status) {
    case PutStatus::kStored:
      return KVKEEP_PUT_STORED;
    case PutStatus::kPresent:
      return KVKEEP_PUT_PRESENT;
    case PutStatus::kRejected:
      return KVKEEP_PUT_REJECTED;
    case PutStatus::kUnfinished:
      break;
  }
  return KVKEEP_PUT_UNFINISHED;
}

}  // namespace

void WriteOutcomes(const GetResult& got, std::span<kvkeep_get_outcome> outcomes,
                   const kvkeep_buffer* metadata) {
  const size_t chunks = std::min(got.chunks.size(), outcomes.size());
  for (size_t i = 0; i < chunks; ++i) {
    const GetOutcome& outcome = got.chunks[i];
    kvkeep_get_outcome& to = outcomes[i];
    to = {.status = CodeOf(outcome.status),
          .metadata_bytes = static_cast<uint32_t>(outcome.metadata.size()),
          .payload_bytes = outcome.payload_bytes,
          .bytes = outcome.bytes};
    if (metadata == nullptr || outcome.metadata.empty()) continue;
    if (outcome.metadata.size() <= metadata[i].bytes) {
      std::memcpy(metadata[i].data, outcome.metadata.data(), outcome.metadata.size());
    } else {
      to.status = KVKEEP_GET_TOO_SMALL;
      to.bytes = 0;
    }
  }
}

std::string WriteOutcomes(const PutResult& put, std::span<uint32_t> outcomes) {
  std::string note;
  const size_t chunks = std::min(put.chunks.size(), outcomes.size());
  for (size_t i = 0; i < chunks; ++i) {
    outcomes[i] = CodeOf(put.chunks[i].status);
    if (put.chunks[i].status == PutStatus::kRejected && note.empty()) {
      note = absl::StrCat("chunks[", i, "]: ", put.chunks[i].message);
    }
  }
  return note;
}

}  // namespace kvkeep::client
