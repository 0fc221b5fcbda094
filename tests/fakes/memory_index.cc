#include "tests/fakes/memory_index.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

void MemoryIndex::SetFaults(const Faults& faults) {
  MutexLock lock(&mu_);
  faults_ = faults;
  if (faults.breaks) return;
  broken_ = false;
  phantom_.reset();
}

void MemoryIndex::Kill() {
  MutexLock lock(&mu_);
  faults_ = {};
  broken_ = false;
  scan_fails_after_.reset();
  log_damaged_ = false;
  if (phantom_.has_value()) {
    ++stats_.phantoms;
    Apply(*phantom_, &now_);
    log_.push_back(*std::exchange(phantom_, std::nullopt));
  }
  Reopen(random_);
}

void MemoryIndex::PowerCut(uint64_t seed) {
  MutexLock lock(&mu_);
  faults_ = {};
  broken_ = false;
  scan_fails_after_.reset();
  log_damaged_ = false;
  if (phantom_.has_value()) log_.push_back(*std::exchange(phantom_, std::nullopt));
  const size_t kept = SeededRandom(seed).Below(hole_.value_or(log_.size()) + 1);
  stats_.lost_writes += log_.size() - kept;
  for (size_t i = 0; i < kept; ++i) Apply(log_[i], &durable_);
  log_.clear();
  hole_.reset();
  now_ = durable_;
}

void MemoryIndex::DriveForgets(uint64_t seed, bool open) {
  MutexLock lock(&mu_);
  SeededRandom random(seed);
  hole_in_drive_ = false;
  // The kernel may have kept all of it to itself so far: then nothing is lost.
  if (random.Chance(0.7)) MakeHole(random, /*in_drive=*/false);
  if (!open) Reopen(random);
}

void MemoryIndex::MakeHole(SeededRandom& random, bool in_drive) {
  if (log_.empty()) return;
  const size_t at = random.Below(log_.size());
  hole_in_drive_ = in_drive && (!hole_.has_value() || hole_in_drive_);
  hole_ = std::min(at, hole_.value_or(at));
}

void MemoryIndex::CloseHole() {
  durable_ = now_;
  log_.clear();
  hole_.reset();
}

// RocksDB writes what it replays into a table file, so that no hole outlives a start.
void MemoryIndex::Reopen(SeededRandom& random) {
  if (!hole_.has_value()) return;
  if (!hole_in_drive_ && random.Chance(0.5)) {
    ++stats_.lost_tails;
    stats_.lost_writes += log_.size() - *hole_;
    now_ = durable_;
    for (size_t i = 0; i < *hole_; ++i) Apply(log_[i], &now_);
  }
  CloseHole();
}

bool MemoryIndex::IsStable(const ChunkId& id) const {
  MutexLock lock(&mu_);
  const std::string key = EncodeRecordKey(id);
  const auto stable = durable_.records.find(key), now = now_.records.find(key);
  return stable != durable_.records.end() && now != now_.records.end() &&
         stable->second == now->second;
}

bool MemoryIndex::has_hole() const {
  MutexLock lock(&mu_);
  return hole_.has_value();
}

bool MemoryIndex::MayForget(const ChunkId& id) const {
  MutexLock lock(&mu_);
  if (!phantom_.has_value()) return false;
  const std::string key = EncodeRecordKey(id);
  return std::any_of(phantom_->records.begin(), phantom_->records.end(),
                     [&key](const auto& one) { return one.first == key && !one.second; });
}

void MemoryIndex::DamageRecord(const ChunkId& id) {
  MutexLock lock(&mu_);
  const std::string key = EncodeRecordKey(id);
  KVKEEP_CHECK(now_.records.contains(key));
  now_.records[key] = "damaged";
  if (durable_.records.contains(key)) durable_.records[key] = "damaged";
  for (Write& write : log_) {
    for (auto& [name, value] : write.records) {
      if (name == key && value.has_value()) value = "damaged";
    }
  }
}

void MemoryIndex::FailNextScan(size_t after) {
  MutexLock lock(&mu_);
  scan_fails_after_ = after;
}

void MemoryIndex::DamageLog() {
  MutexLock lock(&mu_);
  log_damaged_ = true;
}

IndexStats MemoryIndex::stats() const {
  MutexLock lock(&mu_);
  return {.log_damages = log_damaged_ ? uint64_t{1} : 0};
}

void MemoryIndex::Reseed(uint64_t seed) {
  MutexLock lock(&mu_);
  random_ = SeededRandom(seed);
}

std::optional<IndexRecord> MemoryIndex::Find(const ChunkId& id) const {
  MutexLock lock(&mu_);
  const auto found = now_.records.find(EncodeRecordKey(id));
  if (found == now_.records.end()) return std::nullopt;
  absl::StatusOr<IndexRecord> record = DecodeRecord(found->first, found->second);
  if (!record.ok()) return std::nullopt;
  return *std::move(record);
}

std::vector<IndexRecord> MemoryIndex::All() const {
  MutexLock lock(&mu_);
  std::vector<IndexRecord> all;
  for (const auto& [key, value] : now_.records) {
    absl::StatusOr<IndexRecord> record = DecodeRecord(key, value);
    if (record.ok()) all.push_back(*std::move(record));
  }
  return all;
}

size_t MemoryIndex::unsynced_writes() const {
  MutexLock lock(&mu_);
  return log_.size();
}

MemoryIndex::Stats MemoryIndex::counted() const {
  MutexLock lock(&mu_);
  return stats_;
}

void MemoryIndex::Apply(const Changes& changes, std::map<std::string, std::string>* to) {
  for (const auto& [key, value] : changes) {
    if (value.has_value()) {
      (*to)[key] = *value;
    } else {
      to->erase(key);
    }
  }
}

void MemoryIndex::Apply(const Write& write, State* state) {
  Apply(write.records, &state->records);
  Apply(write.meta, &state->meta);
  Apply(write.recency, &state->recency);
  if (write.mark.has_value()) state->mark = *write.mark;
}

absl::Status MemoryIndex::Fail(absl::string_view what, Write write) {
  ++stats_.errors;
  if (faults_.breaks && !std::exchange(broken_, true) && random_.Chance(0.5)) {
    phantom_ = std::move(write);
  }
  return absl::DataLossError(absl::StrCat("memory index: ", what, " failed, as the test asked"));
}

absl::Status MemoryIndex::Append(Write write) {
  MutexLock lock(&mu_);
  if (random_.Chance(faults_.commit_refused)) {
    ++stats_.refused;
    return absl::UnavailableError("memory index: stalled, as the test asked");
  }
  if (random_.Chance(faults_.commit_error) || broken_) return Fail("write", std::move(write));
  ++stats_.commits;
  Apply(write, &now_);
  log_.push_back(std::move(write));
  // Now and then the memory is full, and a table file written.
  constexpr double kTableWritten = 0.02;
  if (hole_.has_value() && random_.Chance(kTableWritten)) CloseHole();
  return absl::OkStatus();
}

absl::Status MemoryIndex::Commit(const IndexBatch& batch) {
  if (batch.empty()) return absl::OkStatus();
  Write write;
  std::set<ChunkId> named;
  for (const ChunkId& id : batch.removes) {
    KVKEEP_CHECK(named.insert(id).second);
    write.records.emplace_back(EncodeRecordKey(id), std::nullopt);
  }
  for (const IndexRecord& record : batch.adds) {
    KVKEEP_CHECK(named.insert(record.id).second);
    write.records.emplace_back(EncodeRecordKey(record.id), EncodeRecordValue(record));
  }
  for (const CommitSequence sequence : batch.forgotten) {
    write.recency.emplace_back(EncodeRecencyKey(sequence), std::nullopt);
  }
  return Append(std::move(write));
}

absl::Status MemoryIndex::SaveRecency(std::span<const RecencyDelta> deltas) {
  KVKEEP_CHECK(deltas.size() <= kMostRecencyDeltas);
  Write write;
  for (const RecencyDelta& delta : deltas) {
    std::optional<std::string> value;
    if (delta.recency.has_value()) value = EncodeRecencyValue(*delta.recency);
    write.recency.emplace_back(EncodeRecencyKey(delta.sequence), std::move(value));
  }
  {
    MutexLock lock(&mu_);
    ++stats_.recency_writes;
    stats_.recency_entries += deltas.size();
  }
  return Append(std::move(write));
}

absl::Status MemoryIndex::ScanRecency(absl::FunctionRef<bool(const RecencyDelta&)> visit) {
  KVKEEP_RETURN_IF_ERROR(ReadFault());
  std::map<std::string, std::string> snapshot;
  {
    MutexLock lock(&mu_);
    snapshot = now_.recency;
  }
  for (const auto& [key, value] : snapshot) {
    const std::optional<RecencyDelta> delta = DecodeRecency(key, value);
    if (delta.has_value() && !visit(*delta)) break;
  }
  return absl::OkStatus();
}

std::map<uint64_t, uint64_t> MemoryIndex::Recency() const {
  MutexLock lock(&mu_);
  std::map<uint64_t, uint64_t> all;
  for (const auto& [key, value] : now_.recency) {
    const std::optional<RecencyDelta> delta = DecodeRecency(key, value);
    KVKEEP_CHECK(delta.has_value());
    all[delta->sequence.value()] = *delta->recency;
  }
  return all;
}

absl::Status MemoryIndex::Sync(const StableMark& mark) {
  MutexLock lock(&mu_);
  if (random_.Chance(faults_.sync_error) || broken_) return FailSync(mark);
  if (random_.Chance(faults_.sync_lies)) {
    ++stats_.lies;
    now_.mark = mark;
    log_.push_back({.mark = mark});
    return absl::OkStatus();
  }
  ++stats_.syncs;
  if (faults_.sync_forgets > 0 && random_.Chance(faults_.sync_forgets) && !log_.empty()) {
    ++stats_.forgetful;
    MakeHole(random_, /*in_drive=*/true);
  }
  SyncLog();
  now_.mark = mark;
  if (hole_.has_value()) {
    log_.push_back({.mark = mark});
  } else {
    durable_.mark = mark;
  }
  return absl::OkStatus();
}

void MemoryIndex::SyncLog() {
  const size_t stable = hole_.value_or(log_.size());
  for (size_t i = 0; i < stable; ++i) Apply(log_[i], &durable_);
  log_.erase(log_.begin(), log_.begin() + static_cast<ptrdiff_t>(stable));
  if (hole_.has_value()) hole_ = 0;
}

// A sync is two writes: the log's own, then the mark. Either may be what failed.
absl::Status MemoryIndex::FailSync(const StableMark& mark) {
  const bool breaks_now = faults_.breaks && !broken_;
  if (breaks_now && random_.Chance(0.5)) {
    SyncLog();
    return Fail("writing the mark", {.mark = mark});
  }
  // The kernel may have given up on pages that it could not write, and calls them clean.
  if (breaks_now && random_.Chance(0.5)) MakeHole(random_, /*in_drive=*/false);
  return Fail("sync", {});
}

absl::Status MemoryIndex::ReadFault() {
  MutexLock lock(&mu_);
  // Without a chance nothing is drawn, so that seeds keep their meaning.
  if (faults_.read_error == 0 || !random_.Chance(faults_.read_error)) return absl::OkStatus();
  ++stats_.errors;
  return absl::DataLossError("memory index: read failed, as the test asked");
}

absl::StatusOr<StableMark> MemoryIndex::ReadStableMark() {
  KVKEEP_RETURN_IF_ERROR(ReadFault());
  MutexLock lock(&mu_);
  return now_.mark;
}

absl::StatusOr<ChunkIndex::ScanResult> MemoryIndex::Scan(
    absl::FunctionRef<bool(const IndexRecord&)> visit) {
  KVKEEP_RETURN_IF_ERROR(ReadFault());
  std::map<std::string, std::string> snapshot;
  std::optional<size_t> fails_after;
  {
    MutexLock lock(&mu_);
    snapshot = now_.records;
    fails_after = std::exchange(scan_fails_after_, std::nullopt);
  }
  ScanResult result;
  for (const auto& [key, value] : snapshot) {
    if (result.records == fails_after) {
      return absl::DataLossError("memory index: the scan failed, as the test asked");
    }
    const absl::StatusOr<IndexRecord> record = DecodeRecord(key, value);
    if (!record.ok()) {
      ++result.undecodable;
      continue;
    }
    ++result.records;
    if (!visit(*record)) break;
  }
  return result;
}

absl::Status MemoryIndex::PutMeta(absl::string_view name, absl::string_view value) {
  Write write;
  write.meta.emplace_back(std::string(name), std::string(value));
  {
    MutexLock lock(&mu_);
    ++stats_.meta_writes;
    stats_.meta_bytes += value.size();
  }
  return Append(std::move(write));
}

absl::Status MemoryIndex::EraseMeta(absl::string_view name) {
  Write write;
  write.meta.emplace_back(std::string(name), std::nullopt);
  return Append(std::move(write));
}

absl::StatusOr<std::optional<std::string>> MemoryIndex::GetMeta(absl::string_view name) {
  KVKEEP_RETURN_IF_ERROR(ReadFault());
  MutexLock lock(&mu_);
  const auto found = now_.meta.find(std::string(name));
  if (found == now_.meta.end()) return std::nullopt;
  return std::optional<std::string>(found->second);
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> MemoryIndex::ListMeta(
    absl::string_view prefix) {
  KVKEEP_RETURN_IF_ERROR(ReadFault());
  MutexLock lock(&mu_);
  std::vector<std::pair<std::string, std::string>> found;
  for (auto it = now_.meta.lower_bound(std::string(prefix));
       it != now_.meta.end() && absl::StartsWith(it->first, prefix); ++it) {
    found.push_back(*it);
  }
  return found;
}

uint64_t MemoryIndex::disk_bytes() const {
  MutexLock lock(&mu_);
  uint64_t bytes = 0;
  for (const auto& [key, value] : now_.records) bytes += key.size() + value.size();
  for (const auto& [name, value] : now_.meta) bytes += name.size() + value.size();
  return bytes;
}

}  // namespace kvkeep
