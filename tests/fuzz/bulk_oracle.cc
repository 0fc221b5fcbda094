#include "tests/fuzz/bulk_oracle.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/checksum.h"

namespace kvkeep {
namespace {

using bulk::FrameKind;

constexpr uint64_t kMostFramePayload = 4 * kPieceBytes;
constexpr uint64_t kMostResults = 64 + 4096 / bulk::kHeadBytes;

template <typename Message>
Message Parsed(const std::string& bytes) {
  Message message;
  KVKEEP_CHECK(message.ParseFromString(bytes));
  return message;
}

bool IsOf(const SentChunks::Chunk& chunk, const v1::GetFrame& frame, const std::string& payload) {
  if (chunk.payload.size() != frame.payload_bytes()) return false;
  if (!frame.metadata().empty() && frame.metadata() != chunk.metadata) return false;
  if (payload.empty()) return true;  // a range behind the chunk's end
  return frame.offset() + payload.size() <= chunk.payload.size() &&
         chunk.payload.compare(frame.offset(), payload.size(), payload) == 0;
}

void CheckHit(const v1::GetFrame& frame, const std::string& payload) {
  KVKEEP_CHECK(frame.offset() % kPieceBytes == 0);
  KVKEEP_CHECK(static_cast<size_t>(frame.piece_checksums_size()) == PieceCount(payload.size()));
  for (int piece = 0; piece < frame.piece_checksums_size(); ++piece) {
    const size_t at = static_cast<size_t>(piece) * kPieceBytes;
    const auto bytes = std::as_bytes(std::span(payload)).subspan(at);
    KVKEEP_CHECK(Xxh3(bytes.first(std::min<size_t>(bytes.size(), kPieceBytes))) ==
                 frame.piece_checksums(piece));
  }
}

}  // namespace

std::string SentChunks::IdOf(const std::string& ns, const std::string& key, uint32_t part) {
  return absl::StrCat(ns, key, "/", part);
}

void SentChunks::Add(const std::string& id, Chunk chunk) {
  bytes_ += chunk.payload.size();
  chunks_[id].push_back(std::move(chunk));
}

const SentChunks::Chunk* SentChunks::Match(const std::optional<std::string>& id,
                                           const v1::GetFrame& frame,
                                           const std::string& payload) const {
  for (const auto& [name, chunks] : chunks_) {
    if (id.has_value() && name != *id) continue;
    for (const Chunk& chunk : chunks) {
      if (IsOf(chunk, frame, payload)) return &chunk;
    }
  }
  return nullptr;
}

void BulkOracle::SaysGet(std::vector<std::string> ids, size_t parts) {
  calls_.push_back({.is_get = true, .ids = std::move(ids), .parts = parts});
}

void BulkOracle::SaysPut(bool is_right) {
  if (calls_.empty() || calls_.back().is_get || calls_.back().done) calls_.emplace_back();
  calls_.back().right.push_back(is_right);
}

void BulkOracle::SaysPutDone() {
  if (!calls_.empty() && !calls_.back().is_get) calls_.back().done = true;
}

void BulkOracle::StartAfresh() {
  KVKEEP_CHECK(greeted_ && !over_ && written_.empty());
  calls_.clear();
  muddled_ = false;
}

void BulkOracle::Reads(uint64_t bytes) {
  // As many as may wait, and those that fit into what is read ahead.
  KVKEEP_CHECK(muddled_ || over_ || puts_read_ <= results_ + kMostResults);
  bytes_read_ += bytes;
  for (; !put_ends_.empty() && put_ends_.front() <= bytes_read_; ++puts_read_) {
    put_ends_.pop_front();
  }
}

void BulkOracle::Writes(std::span<const std::byte> bytes) {
  written_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (written_.size() >= bulk::kHeadBytes) {
    const bulk::FrameHead head =
        bulk::DecodeHead(std::as_bytes(std::span(written_)).first<bulk::kHeadBytes>());
    KVKEEP_CHECK(head.message_bytes <= bulk::kMaxMessageBytes);
    KVKEEP_CHECK(head.payload_bytes <= (head.kind == FrameKind::kChunk ? kMostFramePayload : 0));
    const size_t end = bulk::kHeadBytes + head.message_bytes + head.payload_bytes;
    if (written_.size() < end) return;
    Take(head, written_.substr(bulk::kHeadBytes, head.message_bytes),
         written_.substr(end - head.payload_bytes, head.payload_bytes));
    written_.erase(0, end);
  }
}

void BulkOracle::Take(const bulk::FrameHead& head, const std::string& message,
                      const std::string& payload) {
  KVKEEP_CHECK(!over_);
  if (head.kind == FrameKind::kWelcome) {
    KVKEEP_CHECK(!std::exchange(greeted_, true));
    KVKEEP_CHECK(Parsed<v1::BulkWelcome>(message).version() == bulk::kVersion);
    return;
  }
  if (head.kind == FrameKind::kEnd) return TakeEnd(Parsed<v1::BulkEnd>(message));
  KVKEEP_CHECK(greeted_);
  if (head.kind == FrameKind::kChunk) return TakeChunk(Parsed<v1::GetFrame>(message), payload);
  KVKEEP_CHECK(head.kind == FrameKind::kResult);
  TakeResult(Parsed<v1::PutResult>(message));
}

void BulkOracle::TakeChunk(const v1::GetFrame& frame, const std::string& payload) {
  KVKEEP_CHECK(frame.payload().empty());
  std::optional<std::string> id;
  if (!muddled_) {
    KVKEEP_CHECK(!calls_.empty() && calls_.front().is_get);
    Call& call = calls_.front();
    KVKEEP_CHECK(call.answered < call.ids.size());
    KVKEEP_CHECK(frame.key_index() == call.answered / call.parts);
    KVKEEP_CHECK(frame.part_index() == call.answered % call.parts);
    id = call.ids[call.answered];
    if (frame.last()) ++call.answered;
  }
  const SentChunks::Chunk* const before = std::exchange(current_, nullptr);
  if (frame.status() != v1::CHUNK_STATUS_HIT) {
    KVKEEP_CHECK(frame.last() && payload.empty());
    KVKEEP_CHECK(frame.status() != v1::CHUNK_STATUS_CORRUPT);  // nothing fails in this world
    return;
  }
  CheckHit(frame, payload);
  const bool goes_on = before != nullptr && IsOf(*before, frame, payload);
  const SentChunks::Chunk* const chunk = goes_on ? before : sent_->Match(id, frame, payload);
  KVKEEP_CHECK(chunk != nullptr);
  KVKEEP_CHECK(before == nullptr || goes_on);  // one chunk, not parts of two
  if (!frame.last()) current_ = chunk;
}

void BulkOracle::TakeResult(const v1::PutResult& result) {
  KVKEEP_CHECK(result.status() != v1::PUT_STATUS_UNSPECIFIED);
  ++results_;
  if (muddled_) return;
  KVKEEP_CHECK(!calls_.empty() && !calls_.front().is_get);
  Call& call = calls_.front();
  KVKEEP_CHECK(result.ordinal() == call.answered && call.answered < call.right.size());
  const bool is_kept =
      result.status() == v1::PUT_STATUS_STORED || result.reason() == v1::REJECT_REASON_NOT_DURABLE;
  KVKEEP_CHECK(call.right[call.answered++] || !is_kept);
}

void BulkOracle::TakeEnd(const v1::BulkEnd& end) {
  ++calls_ended_;
  if (ends_soon_) KVKEEP_CHECK(++ended_since_ == 1);  // of the call under way
  const bool is_error = end.code() != 0;
  if (!greeted_) {
    KVKEEP_CHECK(is_error);
    over_ = true;
    return;
  }
  current_ = nullptr;
  if (muddled_) return;
  if (calls_.empty() || !calls_.front().is_get) over_ = is_error;
  KVKEEP_CHECK(is_error || !calls_.empty());
  if (calls_.empty()) return;
  const Call& call = calls_.front();
  if (!is_error) {
    KVKEEP_CHECK(call.answered == (call.is_get ? call.ids.size() : call.right.size()));
    KVKEEP_CHECK(call.is_get || call.done);
  }
  calls_.pop_front();
}

}  // namespace kvkeep
