#include "client/c/arguments.h"

#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

static_assert(sizeof(kvkeep_key) == sizeof(ChunkKey) && alignof(kvkeep_key) == alignof(ChunkKey));

static_assert(KVKEEP_PATH_AUTO == static_cast<int>(PathChoice::kAuto) &&
              KVKEEP_PATH_GRPC == static_cast<int>(PathChoice::kGrpc) &&
              KVKEEP_PATH_LOCAL == static_cast<int>(PathChoice::kLocal));

constexpr size_t kMaxRunsPerChunk = 65536;
static_assert(kMaxRunsPerChunk == KVKEEP_MAX_GPU_RUNS);

ChunkKey KeyOf(const kvkeep_key& given) {
  ChunkKey key;
  std::memcpy(key.bytes.data(), given.bytes, sizeof(given.bytes));
  return key;
}

Deadline OrDefault(uint32_t ms, Deadline otherwise) { return ms == 0 ? otherwise : Deadline(ms); }

std::string Field(size_t index, absl::string_view name) {
  return absl::StrCat("chunks[", index, "].", name);
}

// For chunks of host memory and of GPU memory, which have the same fields except for their runs.
template <typename Given>
absl::Status CheckRuns(const Given& given, size_t index) {
  if (given.runs == nullptr) return IsNull(Field(index, "runs"));
  if (given.run_count == 0 || given.run_count > kMaxRunsPerChunk) {
    return absl::InvalidArgumentError(absl::StrCat(Field(index, "run_count"), ": ", given.run_count,
                                                   ", 1 to ", kMaxRunsPerChunk, " are possible"));
  }
  return absl::OkStatus();
}

// Converts all fields but the runs.
template <typename Chunk, typename Given>
absl::StatusOr<Chunk> ToPut(const Given& given, size_t index) {
  KVKEEP_RETURN_IF_ERROR(CheckRuns(given, index));
  if (given.metadata == nullptr && given.metadata_bytes != 0) {
    return IsNull(Field(index, "metadata"));
  }
  if (given.metadata_bytes > KVKEEP_MAX_METADATA_BYTES) {
    return absl::InvalidArgumentError(absl::StrCat(Field(index, "metadata_bytes"), ": ",
                                                   given.metadata_bytes, ", at most ",
                                                   KVKEEP_MAX_METADATA_BYTES));
  }
  Chunk chunk;
  chunk.key = KeyOf(given.key);
  chunk.part = given.part;
  if (given.has_parent != 0) chunk.parent_key = KeyOf(given.parent_key);
  if (given.metadata_bytes != 0) {
    chunk.metadata.assign(static_cast<const char*>(given.metadata), given.metadata_bytes);
  }
  return chunk;
}

template <typename Given>
std::vector<GpuRun> GpuRunsOf(const Given& given) {
  std::vector<GpuRun> runs;
  runs.reserve(given.run_count);
  for (const kvkeep_gpu_run& run : std::span(given.runs, given.run_count)) {
    runs.push_back({.region = GpuRegionId(run.region), .offset = run.offset, .bytes = run.bytes});
  }
  return runs;
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
  KVKEEP_ASSIGN_OR_RETURN(PutChunk chunk, (ToPut<PutChunk>(given, index)));
  for (const kvkeep_const_buffer& run : std::span(given.runs, given.run_count)) {
    if (run.data == nullptr && run.bytes != 0) return IsNull(Field(index, "runs: data"));
    chunk.runs.emplace_back(static_cast<const std::byte*>(run.data), run.bytes);
  }
  return chunk;
}

absl::StatusOr<GpuPutChunk> GpuPutChunkOf(const kvkeep_gpu_put_chunk& given, size_t index) {
  KVKEEP_ASSIGN_OR_RETURN(GpuPutChunk chunk, (ToPut<GpuPutChunk>(given, index)));
  chunk.runs = GpuRunsOf(given);
  return chunk;
}

absl::StatusOr<GpuGetChunk> GpuGetChunkOf(const kvkeep_gpu_get_chunk& given, size_t index) {
  KVKEEP_RETURN_IF_ERROR(CheckRuns(given, index));
  return GpuGetChunk{.key = KeyOf(given.key), .part = given.part, .runs = GpuRunsOf(given)};
}

absl::StatusOr<ClientOptions> OptionsOf(const kvkeep_client_options* given) {
  constexpr size_t kFirstPublished = offsetof(kvkeep_client_options, ca_file);
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_client_options read,
                          CopyIn("options", given, kFirstPublished));
  if (read.path > KVKEEP_PATH_LOCAL) {
    return absl::InvalidArgumentError(absl::StrCat("path: ", read.path, " is not a kvkeep_path"));
  }
  ClientOptions options;
  options.endpoint = TextOf(read.endpoint);
  options.client_name = TextOf(read.client_name);
  options.default_deadline = OrDefault(read.default_deadline_ms, options.default_deadline);
  options.backoff_min = OrDefault(read.backoff_min_ms, options.backoff_min);
  options.backoff_max = OrDefault(read.backoff_max_ms, options.backoff_max);
  options.local_socket = TextOf(read.local_socket);
  options.bulk = TextOf(read.bulk);
  options.path = static_cast<PathChoice>(read.path);
  options.security = {.ca_file = TextOf(read.ca_file),
                      .cert_file = TextOf(read.cert_file),
                      .key_file = TextOf(read.key_file),
                      .server_name = TextOf(read.server_name),
                      .token = "",
                      .token_file = TextOf(read.token_file)};
  return options;
}

absl::StatusOr<NamespaceSpec> SpecOf(const kvkeep_namespace_spec* given) {
  constexpr size_t kFirstPublished = offsetof(kvkeep_namespace_spec, tenant);
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_namespace_spec read,
                          CopyIn("spec", given, kFirstPublished));
  return NamespaceSpec{.model = TextOf(read.model),
                       .dtype = TextOf(read.dtype),
                       .layout = TextOf(read.layout),
                       .tokens_per_chunk = read.tokens_per_chunk,
                       .bytes_per_part = read.bytes_per_part,
                       .parts = read.parts == 0 ? 1 : read.parts,
                       .hash_algorithm = TextOf(read.hash_algorithm),
                       .hash_seed = TextOf(read.hash_seed),
                       .tenant = TextOf(read.tenant)};
}

PutOptions PutOptionsOf(uint32_t flags, uint32_t deadline_ms) {
  return {.durable = (flags & KVKEEP_PUT_DURABLE) != 0,
          .transient = (flags & KVKEEP_PUT_TRANSIENT) != 0,
          .no_g3 = (flags & KVKEEP_PUT_NO_G3) != 0,
          .checksum = (flags & KVKEEP_PUT_CHECKSUM) != 0,
          .deadline = Deadline(deadline_ms)};
}

absl::Status CheckMetadataRooms(const kvkeep_buffer* rooms, uint64_t chunks) {
  for (uint64_t i = 0; rooms != nullptr && i < chunks; ++i) {
    if (rooms[i].data == nullptr && rooms[i].bytes != 0) {
      return IsNull(absl::StrCat("metadata[", i, "].data"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::span<std::byte>>> DestinationsOf(const kvkeep_get_request& given) {
  uint64_t count = given.chunk_count;
  if (given.run_counts != nullptr) count = 0;
  for (uint64_t i = 0; given.run_counts != nullptr && i < given.chunk_count; ++i) {
    if (given.run_counts[i] > kMaxRunsPerChunk) {
      return absl::InvalidArgumentError(absl::StrCat("run_counts[", i, "]: ", given.run_counts[i],
                                                     ", at most ", kMaxRunsPerChunk));
    }
    count += given.run_counts[i];
  }
  std::vector<std::span<std::byte>> destinations;
  destinations.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const kvkeep_buffer& to = given.destinations[i];
    if (to.data == nullptr && to.bytes != 0 && given.run_counts == nullptr) {
      return IsNull(absl::StrCat("destinations[", i, "].data"));
    }
    destinations.emplace_back(static_cast<std::byte*>(to.data), to.bytes);
  }
  return destinations;
}

}  // namespace kvkeep::client
