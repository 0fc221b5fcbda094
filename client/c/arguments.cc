#include "client/c/arguments.h"

#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

static_assert(sizeof(kvkeep_key) == sizeof(ChunkKey) && alignof(kvkeep_key) == alignof(ChunkKey));

constexpr size_t kMaxRunsPerChunk = 65536;

ChunkKey KeyOf(const kvkeep_key& given) {
  ChunkKey key;
  std::memcpy(key.bytes.data(), given.bytes, sizeof(given.bytes));
  return key;
}

}  // namespace

absl::StatusOr<ChunkSelection> SelectionOf(const kvkeep_keys& given) {
  if (given.ns == nullptr) return IsNull("keys.ns");
  if (given.keys == nullptr) return IsNull("keys.keys");
  if (given.key_count == 0) return absl::InvalidArgumentError("keys.key_count: 0");
  if (given.parts == nullptr && given.part_count != 0) return IsNull("keys.parts");
  ChunkSelection selection = {.ns = &given.ns->impl};
  selection.keys = Keys(reinterpret_cast<const ChunkKey*>(given.keys), given.key_count);
  if (given.part_count != 0) selection.parts = Parts(given.parts, given.part_count);
  const uint32_t parts = given.part_count != 0 ? given.part_count : given.ns->impl.spec().parts;
  selection.chunks = uint64_t{given.key_count} * parts;
  return selection;
}

absl::Status CheckFlags(uint32_t flags, uint32_t known) {
  if ((flags & ~known) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("flags: ", flags, " has bits that this library does not know"));
}

absl::StatusOr<PutChunk> PutChunkOf(const kvkeep_put_chunk& given, size_t index) {
  const auto field = [index](absl::string_view name) {
    return absl::StrCat("chunks[", index, "].", name);
  };
  if (given.runs == nullptr) return IsNull(field("runs"));
  if (given.run_count == 0 || given.run_count > kMaxRunsPerChunk) {
    return absl::InvalidArgumentError(absl::StrCat(field("run_count"), ": ", given.run_count,
                                                   ", 1 to ", kMaxRunsPerChunk, " are possible"));
  }
  if (given.metadata == nullptr && given.metadata_bytes != 0) return IsNull(field("metadata"));
  PutChunk chunk = {.key = KeyOf(given.key), .part = given.part};
  if (given.has_parent != 0) chunk.parent_key = KeyOf(given.parent_key);
  for (const kvkeep_const_buffer& run : std::span(given.runs, given.run_count)) {
    if (run.data == nullptr && run.bytes != 0) return IsNull(field("runs: data"));
    chunk.runs.emplace_back(static_cast<const std::byte*>(run.data), run.bytes);
  }
  if (given.metadata_bytes != 0) {
    if (given.metadata_bytes > KVKEEP_MAX_METADATA_BYTES) {
      return absl::InvalidArgumentError(absl::StrCat(field("metadata_bytes"), ": ",
                                                     given.metadata_bytes, ", at most ",
                                                     KVKEEP_MAX_METADATA_BYTES));
    }
    chunk.metadata.assign(static_cast<const char*>(given.metadata), given.metadata_bytes);
  }
  return chunk;
}

absl::StatusOr<std::vector<std::span<std::byte>>> DestinationsOf(const kvkeep_get_request& given) {
  std::vector<std::span<std::byte>> destinations;
  destinations.reserve(given.chunk_count);
  for (uint64_t i = 0; i < given.chunk_count; ++i) {
    const kvkeep_buffer& to = given.destinations[i];
    if (to.data == nullptr && to.bytes != 0) {
      return IsNull(absl::StrCat("destinations[", i, "].data"));
    }
    destinations.emplace_back(static_cast<std::byte*>(to.data), to.bytes);
  }
  return destinations;
}

}  // namespace kvkeep::client
