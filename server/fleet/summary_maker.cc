#include "server/fleet/summary_maker.h"

#include <algorithm>
#include <utility>

#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"

namespace kvkeep {
namespace {

constexpr int kPartOfTime = 20;

uint64_t VersionOf(const ChunkSummary& summary) {
  Xxh3Stream stream;
  const uint32_t level = summary.level();
  stream.Append(std::as_bytes(std::span(&level, 1)));
  stream.Append(AsBytes(summary.bits()));
  return std::max<uint64_t>(stream.Digest(), 1);
}

}  // namespace

size_t SummaryMaker::MostBytes(size_t peers) {
  return std::clamp(kBytesOfAll / std::max<size_t>(peers, 1), kLeastBytes,
                    ChunkSummary::kMostBytes);
}

std::shared_ptr<const SummaryMaker::Made> SummaryMaker::OfNothing() {
  ChunkSummary none = SummaryBuilder(kLeastBytes).Build();
  const uint64_t version = VersionOf(none);
  return std::make_shared<const Made>(Made{version, std::move(none)});
}

SummaryMaker::SummaryMaker(const Options& options, const NameHash& hash, NameAll name_all,
                           Executor* executor, const Clock* clock)
    : options_(options),
      hash_(hash),
      name_all_(std::move(name_all)),
      executor_(*executor),
      clock_(*clock) {}

std::shared_ptr<const SummaryMaker::Made> SummaryMaker::Newest() {
  const MonotonicTime now = clock_.Now();
  std::shared_ptr<const Made> newest;
  size_t most_bytes = 0;
  {
    MutexLock lock(&mu_);
    newest = newest_;
    if (!making_ && !stopped_ && now >= not_before_) {
      making_ = true;
      most_bytes = most_bytes_;
    }
  }
  if (most_bytes > 0) executor_.Post([this, most_bytes] { Make(most_bytes); });
  return newest;
}

void SummaryMaker::Make(size_t most_bytes) {
  const MonotonicTime began = clock_.Now();
  SummaryBuilder builder(most_bytes);
  name_all_([&](const ChunkId& id) {
    builder.Add(hash_(id));
    return !stopped_;
  });
  ChunkSummary summary = builder.Build();
  const uint64_t version = VersionOf(summary);
  auto made = std::make_shared<const Made>(Made{version, std::move(summary)});
  const MonotonicTime now = clock_.Now();
  MutexLock lock(&mu_);
  newest_ = std::move(made);
  not_before_ = std::max<MonotonicTime>(began + options_.every, now + kPartOfTime * (now - began));
  making_ = false;
}

void SummaryMaker::SetPeers(size_t peers) {
  MutexLock lock(&mu_);
  most_bytes_ = MostBytes(peers);
}

void SummaryMaker::Stop() { stopped_ = true; }

bool SummaryMaker::busy() const {
  MutexLock lock(&mu_);
  return making_;
}

}  // namespace kvkeep
