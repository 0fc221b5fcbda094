// FakeLocalDaemon: puts.
#include <poll.h>
#include <unistd.h>

#include <cstring>

#include "tests/fakes/fake_local_connection.h"
#include "tests/fakes/read_body.h"
#include "tiers/base/bytes.h"
#include "tiers/base/check.h"

namespace kvkeep::fakes {

using local::Kind;

// Waits until the payload is there, unless it has the chunk. Returns false if stopped before.
bool FakeLocalDaemon::AwaitParts(const Connection& connection, const local::PutInParts& request,
                                 const local::PutChunk& chunk) {
  const ChunkId id{NamespaceDigest{.bytes = request.ns}, ChunkKey{.bytes = chunk.key},
                   PartId(chunk.part)};
  {
    MutexLock lock(&mu_);
    if (arena_->chunks.contains(id)) return true;
  }
  KVKEEP_CHECK(request.filled_offset % sizeof(uint64_t) == 0 &&
               request.filled_offset < connection.staging_bytes);
  const auto* word =
      reinterpret_cast<const uint64_t*>(connection.staging_memory + request.filled_offset);
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < chunk.payload_bytes && !stopping_) {
    poll(nullptr, 0, 1);
  }
  return !stopping_;
}

namespace {

// Reads the fields that all kinds of puts have; fills `parts` only for a PutInParts.
local::PutRequest ReadPut(Kind kind, local::BodyReader& reader, local::PutInParts* parts) {
  if (kind == Kind::kPut) return Read<local::PutRequest>(reader);
  if (kind == Kind::kPutInParts) {
    *parts = Read<local::PutInParts>(reader);
    return {.ns = parts->ns, .chunks = parts->chunks, .runs = parts->runs};
  }
  const auto until = Read<local::PutUntil>(reader);
  KVKEEP_CHECK(until.deadline_ns > 0);
  return {.ns = until.ns, .chunks = until.chunks, .runs = until.runs};
}

}  // namespace

void FakeLocalDaemon::HandlePut(Connection& connection, Kind kind, const local::Message& message) {
  local::BodyReader reader(message.body);
  local::PutInParts parts;
  const local::PutRequest request = ReadPut(kind, reader, &parts);
  std::vector<local::PutChunk> chunks;
  std::vector<local::PutRun> runs;
  KVKEEP_CHECK(reader.ReadAll(request.chunks, &chunks) && reader.ReadAll(request.runs, &runs));
  KVKEEP_CHECK(chunks.size() <= script.max_put_chunks);
  if (kind == Kind::kPutInParts && !AwaitParts(connection, parts, chunks.front())) return;
  local::MessageWriter reply = local::StartReply(kind, message.id);
  reply.Append(local::PutReply{.chunks = request.chunks});
  std::string messages;
  for (const local::PutChunk& chunk : chunks) {
    std::vector<std::byte> payload;
    for (uint32_t i = 0; i < chunk.runs; ++i) {
      const local::PutRun& run = runs.at(chunk.first_run + i);
      const size_t at = payload.size();
      payload.resize(at + run.bytes);
      if (run.region == local::kStagingRegion) {
        KVKEEP_CHECK(run.offset + run.bytes <= connection.staging_bytes);
        std::memcpy(payload.data() + at, connection.staging_memory + run.offset, run.bytes);
      } else {
        ++direct_runs;
        KVKEEP_CHECK(pread(connection.regions.at(run.region).get(), payload.data() + at, run.bytes,
                           static_cast<off_t>(run.offset)) == static_cast<ssize_t>(run.bytes));
      }
    }
    std::span<const std::byte> tail;
    KVKEEP_CHECK(reader.ReadBytes(chunk.tail_bytes, &tail));
    KVKEEP_CHECK(payload.size() == chunk.payload_bytes);
    const ChunkId id{NamespaceDigest{.bytes = request.ns}, ChunkKey{.bytes = chunk.key},
                     PartId(chunk.part)};
    MutexLock lock(&mu_);
    if (arena_->chunks.contains(id)) {
      reply.Append(local::PutAnswer{.status = 2});
    } else if (arena_->used + payload.size() + kMiB > kSegments * kSegmentBytes) {
      const std::string text = "the fake is full";
      reply.Append(local::PutAnswer{
          .status = 3, .reason = 1, .message_bytes = static_cast<uint16_t>(text.size())});
      messages += text;
    } else {
      Store(id, payload, std::string(AsText(tail)));
      reply.Append(local::PutAnswer{.status = 1});
    }
  }
  reply.AppendText(messages);
  const bool say_copied = script.say_copied;
  const bool held = script.hold == static_cast<uint16_t>(Kind::kPut) ||
                    script.hold == static_cast<uint16_t>(kind);
  if (!held && !say_copied) {
    return Reply(connection, std::move(reply));
  }
  {
    MutexLock lock(&connection.mu);
    connection.held.emplace_back(std::move(reply), UniqueFd());
  }
  // Only now, as a client that hears it may call Let().
  if (say_copied) {
    Reply(connection, local::MessageWriter(static_cast<uint16_t>(Kind::kPutCopied), message.id));
  }
}

}  // namespace kvkeep::fakes
