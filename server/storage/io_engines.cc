#include "server/storage/io_engines.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

void AddTo(const IoEngine::Stats& one, IoEngine::Stats* sum) {
  sum->reads += one.reads;
  sum->writes += one.writes;
  sum->read_bytes += one.read_bytes;
  sum->write_bytes += one.write_bytes;
  sum->errors += one.errors;
  sum->short_resumed += one.short_resumed;
  sum->retried += one.retried;
  sum->fixed_buffer_ios += one.fixed_buffer_ios;
  sum->plain_buffer_ios += one.plain_buffer_ios;
  sum->buffer_registration_failures += one.buffer_registration_failures;
  sum->shared_buffers += one.shared_buffers;
  sum->buffered_opens += one.buffered_opens;
  sum->in_flight += one.in_flight;
  sum->queued += one.queued;
}

}  // namespace

void IoEngines::Add(std::unique_ptr<IoEngine> engine) {
  MutexLock lock(&mu_);
  entries_.push_back({.engine = std::move(engine)});
}

void IoEngines::Register(IoEngine* engine, std::span<std::byte> memory,
                         std::shared_ptr<Registration> registration) {
  auto task = [engine, memory, registration = std::move(registration)] {
    registration->status = engine->RegisterBuffer(memory);
    registration->done = true;
  };
  // An engine without a loop registers nothing, and says so at once.
  engine->loop() == nullptr ? task() : engine->loop()->Post(std::move(task));
}

void IoEngines::Share(std::shared_ptr<SharedBuffers> shared, Executor* executor) {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(pinned_ == 0 && executor != nullptr);
  shared_ = std::move(shared);
  pinner_ = executor;
}

// Pins the next segment. If that fails, each engine tries by itself, and reports its own error.
bool IoEngines::PinNext(Arena& arena) {
  if (pinning_ != nullptr) {
    if (!pinning_->done) return false;
    ++pinned_;
    pinning_ = nullptr;
  }
  if (pinned_ == arena.segment_count() || !arena.SegmentIsWhole(pinned_)) return true;
  pinning_ = std::make_shared<Registration>();
  pinner_->Post([shared = shared_, memory = arena.SegmentMemory(pinned_), pinning = pinning_] {
    pinning->status = shared->Pin(memory);
    pinning->done = true;
  });
  return false;
}

bool IoEngines::RegisterNext(Arena& arena, absl::FunctionRef<void(const absl::Status&)> failed) {
  MutexLock lock(&mu_);
  bool all = shared_ == nullptr || entries_.empty() || PinNext(arena);
  const size_t ready = shared_ == nullptr ? arena.segment_count() : pinned_;
  for (Entry& entry : entries_) {
    if (entry.under_way != nullptr) {
      if (!entry.under_way->done) {
        all = false;
        continue;
      }
      if (!entry.under_way->status.ok()) failed(entry.under_way->status);
      entry.under_way = nullptr;
    }
    if (entry.segments == ready || !arena.SegmentIsWhole(entry.segments)) continue;
    all = false;
    entry.under_way = std::make_shared<Registration>();
    Register(entry.engine.get(), arena.SegmentMemory(entry.segments++), entry.under_way);
  }
  return all;
}

IoEngine::Stats IoEngines::stats() const {
  IoEngine::Stats sum;
  MutexLock lock(&mu_);
  for (const Entry& entry : entries_) AddTo(entry.engine->stats(), &sum);
  return sum;
}

std::string IoEngines::describe() const {
  std::vector<std::pair<std::string, int>> said;
  MutexLock lock(&mu_);
  for (const Entry& entry : entries_) {
    std::string text = entry.engine->describe();
    const auto same = std::find_if(said.begin(), said.end(),
                                   [&](const auto& other) { return other.first == text; });
    same == said.end() ? void(said.emplace_back(std::move(text), 1)) : void(++same->second);
  }
  return absl::StrJoin(said, "; ", [](std::string* out, const auto& one) {
    if (one.second > 1) absl::StrAppend(out, one.second, " times ");
    absl::StrAppend(out, one.first);
  });
}

std::vector<Executor*> IoEngines::loops() const {
  std::vector<Executor*> loops;
  MutexLock lock(&mu_);
  for (const Entry& entry : entries_) {
    if (entry.engine->loop() != nullptr) loops.push_back(entry.engine->loop());
  }
  return loops;
}

}  // namespace kvkeep
