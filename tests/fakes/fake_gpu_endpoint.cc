#include "tests/fakes/fake_gpu_endpoint.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tests/fakes/read_body.h"
#include "tiers/base/check.h"

namespace kvkeep::fakes {

using local::Kind;

void FakeGpuEndpoint::Set(Script script) {
  MutexLock lock(&mu_);
  script_ = std::move(script);
}

void FakeGpuEndpoint::AddMemory(uint8_t name, size_t bytes) {
  MutexLock lock(&mu_);
  memory_[name].resize(bytes);
}

std::vector<std::byte> FakeGpuEndpoint::Read(uint8_t name, uint64_t offset, uint64_t bytes) const {
  MutexLock lock(&mu_);
  const std::byte* const from = memory_.at(name).data() + offset;
  return {from, from + bytes};
}

void FakeGpuEndpoint::Write(uint8_t name, uint64_t offset, const std::vector<std::byte>& bytes) {
  MutexLock lock(&mu_);
  std::copy(bytes.begin(), bytes.end(), memory_.at(name).begin() + static_cast<ptrdiff_t>(offset));
}

void FakeGpuEndpoint::Forget() {
  MutexLock lock(&mu_);
  registrations_.clear();
}

std::vector<FakeGpuEndpoint::Registration> FakeGpuEndpoint::registrations() const {
  MutexLock lock(&mu_);
  return registrations_;
}

size_t FakeGpuEndpoint::unregistered() const {
  MutexLock lock(&mu_);
  return unregistered_;
}

std::vector<uint32_t> FakeGpuEndpoint::timeouts_ms() const {
  MutexLock lock(&mu_);
  return timeouts_ms_;
}

std::vector<uint64_t> FakeGpuEndpoint::deadlines_ns() const {
  MutexLock lock(&mu_);
  return deadlines_ns_;
}

std::vector<size_t> FakeGpuEndpoint::message_runs() const {
  MutexLock lock(&mu_);
  return message_runs_;
}

std::optional<local::MessageWriter> FakeGpuEndpoint::Answer(Kind kind, local::Message& message) {
  MutexLock lock(&mu_);
  switch (kind) {
    case Kind::kRegisterGpuMemory:
      return Register(message);
    case Kind::kUnregisterGpuMemory:
      ++unregistered_;
      return local::StartReply(kind, message.id);
    case Kind::kPutFromGpu:
    case Kind::kPutFromGpuUntil:
    case Kind::kGetToGpu: {
      local::MessageWriter reply = kind == Kind::kGetToGpu ? Get(message) : Put(kind, message);
      if (script_.silent) return std::nullopt;
      return reply;
    }
    default:
      return std::nullopt;
  }
}

local::MessageWriter FakeGpuEndpoint::Register(local::Message& message) {
  local::BodyReader reader(message.body);
  const auto said = kvkeep::fakes::Read<local::RegisterGpuMemory>(reader);
  if (!script_.refuse.ok()) {
    return local::StartReply(Kind::kRegisterGpuMemory, message.id, script_.refuse);
  }
  registrations_.push_back({.said = said, .descriptor = message.descriptors.size() == 1});
  local::MessageWriter reply = local::StartReply(Kind::kRegisterGpuMemory, message.id);
  reply.Append(local::RegisterGpuReply{.registration = static_cast<uint32_t>(registrations_.size()),
                                       .max_runs = script_.max_runs,
                                       .max_bytes = UINT64_MAX,
                                       .max_registrations = 64,
                                       .max_timeout_ms = script_.max_timeout_ms});
  return reply;
}

absl::Status FakeGpuEndpoint::Check(const std::vector<local::GpuMemoryRun>& runs) {
  message_runs_.push_back(runs.size());
  if (runs.size() > script_.max_runs) return absl::InvalidArgumentError("runs: too many");
  for (const local::GpuMemoryRun& run : runs) {
    const bool skipped = run.offset == 0 && run.generation == 0;
    if (run.registration == local::kSkippedBytes && skipped) continue;
    if (run.registration == 0 || run.registration > registrations_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("registration ", run.registration));
    }
    const local::RegisterGpuMemory& said = registrations_[run.registration - 1].said;
    if (said.generation != run.generation) return absl::InvalidArgumentError("generation");
    if (run.offset > said.bytes || run.bytes > said.bytes - run.offset) {
      return absl::InvalidArgumentError("range");
    }
  }
  return absl::OkStatus();
}

std::byte* FakeGpuEndpoint::At(const local::GpuMemoryRun& run) {
  const local::RegisterGpuMemory& said = registrations_[run.registration - 1].said;
  return memory_.at(said.handle[0]).data() + said.offset + run.offset;
}

local::MessageWriter FakeGpuEndpoint::Put(Kind kind, const local::Message& message) {
  local::BodyReader reader(message.body);
  uint32_t chunk_count = 0, run_count = 0;
  if (kind == Kind::kPutFromGpuUntil) {
    const auto request = kvkeep::fakes::Read<local::GpuPutUntil>(reader);
    chunk_count = request.chunks;
    run_count = request.runs;
    deadlines_ns_.push_back(request.deadline_ns);
  } else {
    const auto request = kvkeep::fakes::Read<local::GpuPutRequest>(reader);
    chunk_count = request.chunks;
    run_count = request.runs;
    timeouts_ms_.push_back(request.timeout_ms);
  }
  std::vector<local::PutChunk> chunks;
  std::vector<local::GpuMemoryRun> runs;
  KVKEEP_CHECK(reader.ReadAll(chunk_count, &chunks) && reader.ReadAll(run_count, &runs));
  if (absl::Status bad = Check(runs); !bad.ok()) {
    return local::StartReply(kind, message.id, bad);
  }
  local::MessageWriter reply = local::StartReply(kind, message.id);
  reply.Append(local::PutReply{.chunks = chunk_count});
  std::string messages;
  for (const local::PutChunk& chunk : chunks) {
    Chunk stored;
    for (uint32_t i = 0; i < chunk.runs; ++i) {
      const local::GpuMemoryRun& run = runs.at(chunk.first_run + i);
      stored.first.insert(stored.first.end(), At(run), At(run) + run.bytes);
    }
    KVKEEP_CHECK(stored.first.size() == chunk.payload_bytes);
    std::span<const std::byte> tail;
    KVKEEP_CHECK(reader.ReadBytes(chunk.tail_bytes, &tail));
    stored.second.assign(tail.begin(), tail.end());
    if (script_.fail_parts.count(chunk.part) > 0) {
      reply.Append(local::PutAnswer{.status = 3, .reason = 7, .message_bytes = 4});
      messages += "late";
      continue;
    }
    ChunkKey key;
    key.bytes = chunk.key;
    const bool fresh = chunks_.emplace(std::pair(key, chunk.part), std::move(stored)).second;
    reply.Append(local::PutAnswer{.status = static_cast<uint8_t>(fresh ? 1 : 2)});
  }
  KVKEEP_CHECK(reader.done());
  reply.AppendText(messages);
  return reply;
}

local::MessageWriter FakeGpuEndpoint::Get(const local::Message& message) {
  local::BodyReader reader(message.body);
  const auto request = kvkeep::fakes::Read<local::GpuGetRequest>(reader);
  std::vector<local::GpuGetChunk> chunks;
  std::vector<local::GpuMemoryRun> runs;
  KVKEEP_CHECK(reader.ReadAll(request.chunks, &chunks) && reader.ReadAll(request.runs, &runs) &&
               reader.done());
  timeouts_ms_.push_back(request.timeout_ms);
  if (absl::Status bad = Check(runs); !bad.ok()) {
    return local::StartReply(Kind::kGetToGpu, message.id, bad);
  }
  local::MessageWriter reply = local::StartReply(Kind::kGetToGpu, message.id);
  reply.Append(local::GpuGetReply{.chunks = request.chunks});
  std::string messages;
  std::vector<std::byte> tails;
  for (const local::GpuGetChunk& chunk : chunks) {
    if (script_.fail_parts.count(chunk.part) > 0) {
      reply.Append(local::GpuGetAnswer{.status = local::kGpuGetFailed, .message_bytes = 4});
      messages += "hung";
      continue;
    }
    ChunkKey key;
    key.bytes = chunk.key;
    const auto found = chunks_.find({key, chunk.part});
    if (found == chunks_.end() || found->second.first.size() != chunk.payload_bytes) {
      reply.Append(local::GpuGetAnswer{.status = local::kGpuGetMiss});
      continue;
    }
    const std::byte* from = found->second.first.data();
    for (uint32_t i = 0; i < chunk.runs; ++i) {
      const local::GpuMemoryRun& run = runs.at(chunk.first_run + i);
      if (run.registration != local::kSkippedBytes) std::copy_n(from, run.bytes, At(run));
      from += run.bytes;
    }
    const std::vector<std::byte>& tail = found->second.second;
    tails.insert(tails.end(), tail.begin(), tail.end());
    reply.Append(local::GpuGetAnswer{.status = local::kGpuGetCopied,
                                     .tail_bytes = static_cast<uint32_t>(tail.size())});
  }
  reply.AppendText(messages);
  reply.AppendAll(std::span<const std::byte>(tails));
  return reply;
}

}  // namespace kvkeep::fakes
