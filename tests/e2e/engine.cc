#include "tests/e2e/engine.h"

#include <absl/strings/str_cat.h>

#include <cstring>
#include <stdexcept>
#include <thread>

namespace kvkeep::e2e {
namespace {

constexpr size_t kStreamBytes = 16 << 20;
constexpr size_t kStreamChunks = 2000;
constexpr int kPutTries = 2000;

void FillPayload(const TestChunk& chunk, std::byte* to) {
  uint64_t x = chunk.number * 0x9E3779B97F4A7C15 + chunk.bytes;
  for (size_t at = 0; at < chunk.bytes; at += sizeof(uint64_t)) {
    uint64_t z = (x += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    z ^= z >> 31;
    std::memcpy(to + at, &z, std::min(sizeof(z), chunk.bytes - at));
  }
}

}  // namespace

ChunkKey Key(uint64_t number) { return *ChunkKey::FromBytes(absl::StrCat("e2e chunk ", number)); }

std::vector<std::byte> Payload(const TestChunk& chunk) {
  std::vector<std::byte> payload(chunk.bytes);
  FillPayload(chunk, payload.data());
  return payload;
}

std::vector<TestChunk> Chunks(uint64_t first, size_t count, size_t bytes) {
  std::vector<TestChunk> chunks(count);
  for (size_t i = 0; i < count; ++i) chunks[i] = {.number = first + i, .bytes = bytes};
  return chunks;
}

std::vector<ChunkKey> KeysOf(const std::vector<TestChunk>& chunks) {
  std::vector<ChunkKey> keys;
  for (const TestChunk& chunk : chunks) keys.push_back(Key(chunk.number));
  return keys;
}

Engine::Engine(const std::string& endpoint, const Options& options) {
  auto connected = client::Client::Connect({.endpoint = endpoint,
                                            .client_name = options.name,
                                            .default_deadline = options.deadline,
                                            .path = options.path,
                                            .bulk = options.bulk,
                                            .channels = options.channels,
                                            .security = options.security,
                                            .peer_timeout = options.peer_timeout});
  if (!connected.ok()) throw std::runtime_error("Connect: " + connected.status().ToString());
  client_ = *std::move(connected);
  const auto opened = client_->OpenNamespace(options.spec);
  if (!opened.ok()) throw std::runtime_error("OpenNamespace: " + opened.status().ToString());
  ns_ = *opened;
}

client::PutOutcome Engine::Put(const TestChunk& chunk, client::PutOptions options) {
  const std::vector<std::byte> payload = Payload(chunk);
  std::vector<client::PutChunk> puts(1);
  puts[0] = {.key = Key(chunk.number), .runs = {payload}};
  const auto put = client_->Put(ns_, std::move(puts), options);
  if (!put.ok()) {
    error = put.status();
    return {};
  }
  if (!put->error.ok()) error = put->error;
  return put->chunks[0];
}

bool Engine::PutAll(const std::vector<TestChunk>& chunks, client::PutOptions options) {
  for (size_t begin = 0; begin < chunks.size();) {
    size_t end = begin, bytes = 0;
    while (end < chunks.size() && end - begin < kStreamChunks &&
           (end == begin || bytes + chunks[end].bytes <= kStreamBytes)) {
      bytes += chunks[end++].bytes;
    }
    std::vector<std::vector<std::byte>> payloads;
    for (size_t i = begin; i < end; ++i) payloads.push_back(Payload(chunks[i]));
    bool all = false;
    for (int tries = 0; !all && tries < kPutTries; ++tries) {
      std::vector<client::PutChunk> puts(end - begin);
      for (size_t i = begin; i < end; ++i) {
        puts[i - begin] = {.key = Key(chunks[i].number), .runs = {payloads[i - begin]}};
      }
      const auto put = client_->Put(ns_, std::move(puts), options);
      if (!put.ok() || !put->error.ok()) {
        error = put.ok() ? put->error : put.status();
        return false;
      }
      all = true;
      for (const client::PutOutcome& outcome : put->chunks) {
        if (outcome.status != client::PutStatus::kRejected) continue;
        all = false;
        error = absl::ResourceExhaustedError(outcome.message);
      }
      // Waits for write-backs in the daemon, which make room.
      if (!all) std::this_thread::sleep_for(milliseconds(5));
    }
    if (!all) return false;
    begin = end;
  }
  return true;
}

client::GetStatus Engine::Get(const TestChunk& chunk, const client::Lease* lease,
                              uint32_t index_in_lease) {
  buffer_.assign(chunk.bytes, std::byte{0});
  const ChunkKey key = Key(chunk.number);
  std::span<std::byte> to(buffer_);
  // Looks beyond the node, as engines do.
  auto got = client_->Get(ns_, absl::MakeSpan(&key, 1),
                          {.lease = lease,
                           .first_key = index_in_lease,
                           .remote_wait = std::chrono::microseconds(0),
                           .destinations = absl::MakeSpan(&to, 1)});
  if (!got.ok() || !got->error.ok()) error = got.ok() ? got->error : got.status();
  if (!got.ok()) return client::GetStatus::kUnfinished;
  const client::GetOutcome& outcome = got->chunks[0];
  if (outcome.status == client::GetStatus::kTooSmall) ++wrong_bytes;
  if (outcome.status != client::GetStatus::kHit) return outcome.status;
  if (outcome.payload_bytes != chunk.bytes || outcome.bytes != chunk.bytes ||
      buffer_ != Payload(chunk)) {
    ++wrong_bytes;
  }
  return outcome.status;
}

size_t Engine::Hits(const std::vector<TestChunk>& chunks) {
  size_t hits = 0;
  for (const TestChunk& chunk : chunks) {
    const uint64_t wrong_before = wrong_bytes;
    hits += Get(chunk) == client::GetStatus::kHit && wrong_bytes == wrong_before;
  }
  return hits;
}

Engine::Presence Engine::Find(const std::vector<TestChunk>& chunks) {
  Presence presence;
  const std::vector<ChunkKey> keys = KeysOf(chunks);
  const auto found = client_->Lookup(ns_, keys);
  if (!found.ok()) {
    error = found.status();
    return presence;
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    presence.g2 += found->in_g2(i);
    presence.g3 += found->in_g3(i);
    presence.any += found->present(i);
  }
  return presence;
}

}  // namespace kvkeep::e2e
