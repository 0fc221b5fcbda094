#include "tests/server/local/bodies.h"

namespace kvkeep {

std::vector<std::byte> HelloBody(const std::string& name, uint16_t max_version) {
  std::vector<std::byte> body(sizeof(local::Hello) + name.size());
  const local::Hello hello{.max_version = max_version,
                           .name_bytes = static_cast<uint32_t>(name.size())};
  std::memcpy(body.data(), &hello, sizeof(hello));
  std::memcpy(body.data() + sizeof(hello), name.data(), name.size());
  return body;
}

std::vector<std::byte> NamespaceBody() {
  local::MessageWriter body(0, 0);
  body.Append(local::OpenNamespace{
      .tokens_per_chunk = 256, .parts = 4, .model_bytes = 4, .dtype_bytes = 4});
  body.AppendText("testbf16");
  const auto whole = body.Finish().subspan(sizeof(local::MessageHeader));
  return {whole.begin(), whole.end()};
}

std::vector<std::byte> KeysBody(const NamespaceDigest& ns, const std::vector<uint64_t>& names,
                                LeaseMode mode, const std::vector<local::ReleaseEntry>& releases,
                                uint64_t request_id, const std::vector<uint32_t>& parts) {
  local::MessageWriter body(0, 0);
  body.Append(local::KeysRequest{.ns = ns.bytes,
                                 .client_request_id = request_id,
                                 .keys = static_cast<uint32_t>(names.size()),
                                 .parts = static_cast<uint16_t>(parts.size()),
                                 .lease_mode = static_cast<uint8_t>(mode),
                                 .releases = static_cast<uint32_t>(releases.size())});
  body.AppendAll(std::span<const local::ReleaseEntry>(releases));
  body.AppendAll(std::span<const uint32_t>(parts));
  for (const uint64_t name : names) body.Append(MakeKey(name));
  const auto whole = body.Finish().subspan(sizeof(local::MessageHeader));
  return {whole.begin(), whole.end()};
}

namespace {

std::vector<std::byte> BodyOf(local::MessageWriter& writer) {
  const auto whole = writer.Finish().subspan(sizeof(local::MessageHeader));
  return {whole.begin(), whole.end()};
}

void AppendRuns(const TestGpuChunk& chunk, std::vector<local::GpuMemoryRun>* runs) {
  uint64_t at = chunk.offset;
  for (uint32_t i = 0; i < chunk.runs; ++i) {
    const uint32_t each = chunk.bytes / chunk.runs;
    const uint32_t bytes = i + 1 == chunk.runs ? chunk.bytes - each * (chunk.runs - 1) : each;
    runs->push_back({.registration = chunk.registration,
                     .bytes = bytes,
                     .offset = at,
                     .generation = chunk.generation});
    at += chunk.stride == 0 ? bytes : chunk.stride;
  }
}

}  // namespace

namespace {

template <typename Request>
std::vector<std::byte> GpuPutBodyOf(Request request, const std::vector<TestGpuChunk>& chunks) {
  std::vector<local::GpuMemoryRun> runs;
  std::vector<local::PutChunk> wire;
  std::string tails;
  for (const TestGpuChunk& chunk : chunks) {
    wire.push_back({.key = MakeKey(chunk.name).bytes,
                    .payload_bytes = chunk.bytes,
                    .tail_bytes = static_cast<uint32_t>(chunk.tail.size()),
                    .first_run = static_cast<uint32_t>(runs.size()),
                    .runs = chunk.runs,
                    .flags = chunk.flags});
    if (chunk.as_before) wire.back().first_run = wire.end()[-2].first_run;
    if (!chunk.as_before) AppendRuns(chunk, &runs);
    tails += chunk.tail;
  }
  local::MessageWriter body(0, 0);
  request.chunks = static_cast<uint32_t>(wire.size());
  request.runs = static_cast<uint32_t>(runs.size());
  body.Append(request);
  body.AppendAll(std::span<const local::PutChunk>(wire));
  body.AppendAll(std::span<const local::GpuMemoryRun>(runs));
  body.AppendText(tails);
  return BodyOf(body);
}

}  // namespace

std::vector<std::byte> GpuPutBody(const NamespaceDigest& ns,
                                  const std::vector<TestGpuChunk>& chunks, uint32_t timeout_ms) {
  return GpuPutBodyOf(local::GpuPutRequest{.ns = ns.bytes, .timeout_ms = timeout_ms}, chunks);
}

std::vector<std::byte> GpuPutUntilBody(const NamespaceDigest& ns,
                                       const std::vector<TestGpuChunk>& chunks,
                                       uint64_t deadline_ns) {
  return GpuPutBodyOf(local::GpuPutUntil{.ns = ns.bytes, .deadline_ns = deadline_ns}, chunks);
}

std::vector<std::byte> GpuGetBody(const NamespaceDigest& ns,
                                  const std::vector<TestGpuChunk>& chunks, const GpuGetHow& how) {
  std::vector<local::GpuMemoryRun> runs;
  std::vector<local::GpuGetChunk> wire;
  for (const TestGpuChunk& chunk : chunks) {
    wire.push_back({.key = MakeKey(chunk.name).bytes,
                    .payload_bytes = chunk.bytes,
                    .first_run = static_cast<uint32_t>(runs.size()),
                    .runs = chunk.runs});
    if (chunk.as_before) wire.back().first_run = wire.end()[-2].first_run;
    if (!chunk.as_before) AppendRuns(chunk, &runs);
  }
  local::MessageWriter body(0, 0);
  body.Append(local::GpuGetRequest{.ns = ns.bytes,
                                   .lease = how.lease,
                                   .chunks = static_cast<uint32_t>(wire.size()),
                                   .runs = static_cast<uint32_t>(runs.size()),
                                   .timeout_ms = how.timeout_ms,
                                   .transient = static_cast<uint8_t>(how.transient ? 1 : 0)});
  body.AppendAll(std::span<const local::GpuGetChunk>(wire));
  body.AppendAll(std::span<const local::GpuMemoryRun>(runs));
  return BodyOf(body);
}

namespace {

template <typename Request>
std::vector<std::byte> PutBodyOf(Request request, const std::vector<TestChunk>& chunks) {
  local::MessageWriter body(0, 0);
  std::vector<local::PutRun> runs;
  std::vector<local::PutChunk> wire;
  std::string tails;
  for (const TestChunk& chunk : chunks) {
    wire.push_back({.key = MakeKey(chunk.name).bytes,
                    .checksum = chunk.checksum,
                    .part = chunk.part,
                    .payload_bytes = chunk.bytes,
                    .tail_bytes = static_cast<uint32_t>(chunk.tail.size()),
                    .first_run = static_cast<uint32_t>(runs.size()),
                    .runs = chunk.runs,
                    .flags = chunk.flags});
    uint64_t at = chunk.offset;
    for (uint32_t i = 0; i < chunk.runs; ++i) {
      const uint32_t bytes = i + 1 == chunk.runs
                                 ? chunk.bytes - chunk.bytes / chunk.runs * (chunk.runs - 1)
                                 : chunk.bytes / chunk.runs;
      runs.push_back({.region = chunk.region, .bytes = bytes, .offset = at});
      at += bytes;
    }
    tails += chunk.tail;
  }
  request.chunks = static_cast<uint32_t>(wire.size());
  request.runs = static_cast<uint32_t>(runs.size());
  body.Append(request);
  body.AppendAll(std::span<const local::PutChunk>(wire));
  body.AppendAll(std::span<const local::PutRun>(runs));
  body.AppendText(tails);
  return BodyOf(body);
}

}  // namespace

std::vector<std::byte> PutBody(const NamespaceDigest& ns, const std::vector<TestChunk>& chunks) {
  return PutBodyOf(local::PutRequest{.ns = ns.bytes}, chunks);
}

std::vector<std::byte> PutUntilBody(const NamespaceDigest& ns, const std::vector<TestChunk>& chunks,
                                    uint64_t deadline_ns) {
  return PutBodyOf(local::PutUntil{.ns = ns.bytes, .deadline_ns = deadline_ns}, chunks);
}

std::vector<std::byte> PartsBody(const NamespaceDigest& ns, const std::vector<TestChunk>& chunks,
                                 uint64_t filled_offset) {
  return PutBodyOf(local::PutInParts{.ns = ns.bytes, .filled_offset = filled_offset}, chunks);
}

}  // namespace kvkeep
