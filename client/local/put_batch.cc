#include "client/local/put_batch.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>

#include "client/local/put_reply.h"
#include "client/local/test_point.h"
#include "client/transport/check_call.h"
#include "tiers/base/check.h"

namespace kvkeep::client {
namespace {

using local::Kind;

// Limit of a batch, which leaves a message room for its fixed part and the largest chunk.
constexpr size_t kMaxBatchBytes = local::kMaxMessageBytes - 64 * kKiB;
// The bytes after which the daemon is told of progress: what it copies at a time.
constexpr uint64_t kPartBytes = kPieceBytes;

}  // namespace

// ---------------------------------------------------------------- PutHold

PutHold::~PutHold() {
  MutexLock lock(&mu_);
  if (!copied_) {
    for (const Range& range : ranges_) range.area->LeaveTo(connection_, until_);
    if (direct_staging_ != nullptr) direct_staging_->LeaveTo(connection_, until_);
    for (const auto& region : regions_) region->LeaveTo(connection_, until_);
  }
  if (!late_) return;
  for (const auto& region : regions_) region->late_puts.fetch_sub(1);
}

void PutHold::AddStaged(std::shared_ptr<StagingArea> area, std::span<std::byte> range) {
  ranges_.push_back({.area = std::move(area), .memory = range});
}

void PutHold::AddDirect(const PutMemory::Direct& direct) {
  if (direct.area != nullptr) {
    direct_staging_ = direct.area;
  } else {
    regions_.insert(regions_.end(), direct.registered.begin(), direct.registered.end());
  }
}

bool PutHold::has_reused() const {
  return std::any_of(regions_.begin(), regions_.end(),
                     [](const auto& region) { return region->reused; });
}

void PutHold::Copied() {
  MutexLock lock(&mu_);
  if (std::exchange(copied_, true)) return;
  if (!filling_) FreeRanges();
  deferral_.reset();
}

void PutHold::FreeRanges() {
  for (const Range& range : ranges_) range.area->Free(range.memory);
}

void PutHold::BeginFilling() {
  MutexLock lock(&mu_);
  filling_ = true;
}

void PutHold::EndFilling() {
  MutexLock lock(&mu_);
  filling_ = false;
  if (copied_) FreeRanges();
}

void PutHold::Late() {
  if (std::chrono::steady_clock::now() >= until_) return Copied();
  MutexLock lock(&mu_);
  if (copied_) return;
  late_ = true;
  if (direct_staging_ != nullptr) deferral_.emplace(direct_staging_);
  for (const auto& region : regions_) region->late_puts.fetch_add(1);
}

// ---------------------------------------------------------------- PutBatch

PutBatch::PutBatch(LocalSessionPtr session, const NamespaceDigest& ns, const PutOptions& options)
    : session_(std::move(session)),
      ns_(ns),
      options_(options),
      hold_(std::make_shared<PutHold>(session_->mappings()->end())) {}

PutBatch::~PutBatch() {
  if (hold_ != nullptr) hold_->Copied();  // never sent
}

bool PutBatch::HasRoomFor(const PutChunk& chunk) const {
  const size_t bytes = chunks_.size() * sizeof(local::PutChunk) +
                       runs_.size() * sizeof(local::PutRun) + tails_.size();
  const size_t more =
      sizeof(local::PutChunk) + chunk.runs.size() * sizeof(local::PutRun) + chunk.metadata.size();
  return chunks_.size() < session_->welcome().max_put_chunks && bytes + more <= kMaxBatchBytes;
}

void PutBatch::AddRun(uint32_t region, uint64_t offset, uint64_t bytes) {
  local::PutChunk& chunk = chunks_.back();
  if (chunk.runs > 0) {
    local::PutRun& last = runs_.back();
    if (last.region == region && last.offset + last.bytes == offset) {  // they touch
      last.bytes += static_cast<uint32_t>(bytes);
      return;
    }
  }
  runs_.push_back({.region = region, .bytes = static_cast<uint32_t>(bytes), .offset = offset});
  ++chunk.runs;
}

void PutBatch::AddChunk(uint32_t index, const PutChunk& chunk) {
  indexes_.push_back(index);
  chunks_.push_back({.key = chunk.key.bytes,
                     .parent_key = chunk.parent_key.has_value()
                                       ? chunk.parent_key->bytes
                                       : std::array<uint8_t, ChunkKey::kSize>{},
                     .checksum = options_.checksum ? PayloadChecksum(chunk) : 0,
                     .part = chunk.part,
                     .payload_bytes = static_cast<uint32_t>(PayloadBytes(chunk)),
                     .tail_bytes = static_cast<uint32_t>(chunk.metadata.size()),
                     .first_run = static_cast<uint32_t>(runs_.size()),
                     .runs = 0,
                     .flags = PutFlagsOf(options_, chunk.parent_key.has_value())});
  tails_.append(chunk.metadata);
}

void PutBatch::AddRuns(const PutChunk& chunk,
                       const std::vector<std::optional<PutMemory::Direct>>& direct,
                       const std::shared_ptr<StagingArea>& area, std::span<std::byte> staged,
                       absl::FunctionRef<void(const Copy&)> each) {
  for (size_t i = 0; i < chunk.runs.size(); ++i) {
    const std::span<const std::byte> run = chunk.runs[i];
    if (run.empty()) continue;
    if (direct[i].has_value()) {
      hold_->AddDirect(*direct[i]);
      AddRun(direct[i]->region, direct[i]->offset, run.size());
      each({.from = run});
      continue;
    }
    KVKEEP_CHECK(run.size() <= staged.size());
    AddRun(area->region(), area->OffsetOf(staged.first(run.size())), run.size());
    each({.from = run, .to = staged.data()});
    staged = staged.subspan(run.size());
  }
}

void PutBatch::Add(uint32_t index, const PutChunk& chunk,
                   const std::vector<std::optional<PutMemory::Direct>>& direct,
                   const std::shared_ptr<StagingArea>& area, std::span<std::byte> staged) {
  AddChunk(index, chunk);
  if (!staged.empty()) {
    hold_->AddStaged(area, staged);
    staged_bytes_ += staged.size();
  }
  AddRuns(chunk, direct, area, staged, [](const Copy& copy) {
    if (copy.to != nullptr) std::memcpy(copy.to, copy.from.data(), copy.from.size());
  });
}

void PutBatch::AddInParts(uint32_t index, const PutChunk& chunk,
                          const std::vector<std::optional<PutMemory::Direct>>& direct,
                          const std::shared_ptr<StagingArea>& area, std::span<std::byte> staged,
                          std::span<std::byte> word) {
  KVKEEP_CHECK(empty());
  AddChunk(index, chunk);
  hold_->AddStaged(area, staged);
  hold_->AddStaged(area, word);
  staged_bytes_ = staged.size();
  AddRuns(chunk, direct, area, staged, [this](const Copy& copy) { parts_.push_back(copy); });
  filled_ = reinterpret_cast<uint64_t*>(word.data());
  filled_offset_ = area->OffsetOf(word);
  __atomic_store_n(filled_, 0, __ATOMIC_RELEASE);
}

void PutBatch::FillParts() {
  if (parts_.empty()) return;
  uint64_t filled = 0, told = 0;
  for (Copy copy : parts_) {
    while (!copy.from.empty() && !session_->over()) {
      const size_t bytes = std::min<uint64_t>(copy.from.size(), told + kPartBytes - filled);
      if (copy.to != nullptr) {
        std::memcpy(copy.to, copy.from.data(), bytes);
        copy.to += bytes;
      }
      copy.from = copy.from.subspan(bytes);
      filled += bytes;
      if (filled < told + kPartBytes && filled < chunks_.front().payload_bytes) continue;
      __atomic_store_n(filled_, filled, __ATOMIC_RELEASE);
      session_->TellOfParts();
      told = filled;
      TestPoint("part-filled");
    }
  }
  filling_->EndFilling();
}

void PutBatch::Send(LocalSession::Time deadline, Done done) {
  const bool in_parts = !parts_.empty();
  const uint64_t deadline_ns =
      !in_parts && hold_->has_direct() ? session_->DeadlineNs(deadline) : 0;
  if (deadline_ns == 0 && hold_->has_reused()) {
    return std::move(done)(absl::DeadlineExceededError("put: no time was left to send it"));
  }
  const Kind kind = in_parts           ? Kind::kPutInParts
                    : deadline_ns == 0 ? Kind::kPut
                                       : Kind::kPutUntil;
  const auto chunks = static_cast<uint32_t>(chunks_.size());
  const uint64_t id = session_->NextId();
  local::MessageWriter writer(static_cast<uint16_t>(kind), id);
  if (!in_parts) TestPoint("staging-filled");
  if (kind == Kind::kPut) {
    writer.Append(local::PutRequest{
        .ns = ns_.bytes, .chunks = chunks, .runs = static_cast<uint32_t>(runs_.size())});
  } else if (kind == Kind::kPutUntil) {
    hold_->EndsAt(deadline);
    writer.Append(local::PutUntil{.ns = ns_.bytes,
                                  .chunks = chunks,
                                  .runs = static_cast<uint32_t>(runs_.size()),
                                  .deadline_ns = deadline_ns});
  } else {
    writer.Append(local::PutInParts{.ns = ns_.bytes,
                                    .runs = static_cast<uint32_t>(runs_.size()),
                                    .filled_offset = filled_offset_});
    filling_ = hold_;
    filling_->BeginFilling();
  }
  writer.AppendAll(std::span<const local::PutChunk>(chunks_));
  writer.AppendAll(std::span<const local::PutRun>(runs_));
  writer.AppendText(tails_);
  LocalSession::Call call{
      .kind = kind, .deadline = deadline, .done = nullptr, .late = nullptr, .copied = nullptr};
  call.done = [hold = hold_, session = session_, indexes = std::move(indexes_),
               done = std::move(done)](absl::StatusOr<LocalSession::Reply> reply) mutable {
    if (!reply.ok()) {
      hold->Late();  // before the caller hears of it; a daemon that answered has read everything
      hold.reset();
      std::move(done)(reply.status());
      return absl::OkStatus();
    }
    hold.reset();
    absl::StatusOr<std::vector<PutOutcome>> read = ReadPutReply(*reply, indexes.size());
    if (!read.ok()) {
      std::move(done)(read.status());
      return read.status();
    }
    std::vector<Outcome> outcomes;
    for (size_t i = 0; i < indexes.size(); ++i) {
      outcomes.push_back({.index = indexes[i], .outcome = std::move((*read)[i])});
    }
    std::move(done)(std::move(outcomes));
    return absl::OkStatus();
  };
  call.copied = [hold = std::move(hold_)] {
    TestPoint("put-copied");
    hold->Copied();
  };
  session_->Send(id, writer, std::move(call));
  TestPoint("put-sent");
}

}  // namespace kvkeep::client
