// Arguments of callers in C, checked and converted to the C++ client's types.
//
// A wrong argument is INVALID_ARGUMENT with the field's name. The results refer to the caller's
// memory, as the calls do. Stateless.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/c/border.h"
#include "client/c/kvkeep_gpu.h"
#include "client/gpu/gpu_values.h"
#include "client/values/options.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {

inline std::string TextOf(const char* text) { return text == nullptr ? "" : text; }

absl::StatusOr<ClientOptions> OptionsOf(const kvkeep_client_options* given);
absl::StatusOr<NamespaceSpec> SpecOf(const kvkeep_namespace_spec* given);

struct ChunkSelection {
  const Namespace* ns = nullptr;
  Keys keys;
  Parts parts;
  uint64_t chunks = 0;  // keys x parts
};
absl::StatusOr<ChunkSelection> SelectionOf(const kvkeep_keys& given);

// Checks that `flags` has no bits but those of `known`.
absl::Status CheckFlags(uint32_t flags, uint32_t known);

// Checks the client, and returns the request in today's struct. `first`: the size of its first
// version.
template <typename Request>
absl::StatusOr<Request> RequestOf(const kvkeep_client* client, const Request* given,
                                  size_t first = sizeof(Request)) {
  if (client == nullptr) return IsNull("client");
  return CopyIn("request", given, first);
}

// Checks that are common to the requests that list their chunks.
template <typename Request>
absl::Status CheckChunkList(const Request& request) {
  if (request.ns == nullptr) return IsNull("ns");
  if (request.chunks == nullptr) return IsNull("chunks");
  if (request.chunk_count == 0) return absl::InvalidArgumentError("chunk_count: 0");
  if (request.outcomes == nullptr) return IsNull("outcomes");
  return absl::OkStatus();
}

// Returns the chunks of a list that was checked, each converted by `convert`, which gets its index.
template <typename Chunk, typename Request, typename Convert>
absl::StatusOr<std::vector<Chunk>> ChunksOf(const Request& request, Convert convert) {
  std::vector<Chunk> chunks;
  chunks.reserve(request.chunk_count);
  for (size_t i = 0; i < request.chunk_count; ++i) {
    KVKEEP_ASSIGN_OR_RETURN(Chunk chunk, convert(request.chunks[i], i));
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

// Convert one chunk; the caller's index of it is for messages.
absl::StatusOr<PutChunk> PutChunkOf(const kvkeep_put_chunk& given, size_t index);
absl::StatusOr<GpuPutChunk> GpuPutChunkOf(const kvkeep_gpu_put_chunk& given, size_t index);
absl::StatusOr<GpuGetChunk> GpuGetChunkOf(const kvkeep_gpu_get_chunk& given, size_t index);
absl::StatusOr<std::vector<std::span<std::byte>>> DestinationsOf(const kvkeep_get_request& given);

// `flags`: of kvkeep_put_request, checked before.
PutOptions PutOptionsOf(uint32_t flags, uint32_t deadline_ms);

// Checks the rooms for metadata, or null: each room that has bytes has an address.
absl::Status CheckMetadataRooms(const kvkeep_buffer* rooms, uint64_t chunks);

}  // namespace kvkeep::client
