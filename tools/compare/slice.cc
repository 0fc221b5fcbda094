#include "tools/compare/slice.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tools/bench/content.h"

namespace kvkeep::compare {
namespace {

using bench::Measured;
using std::chrono::steady_clock;

constexpr uint64_t kSeed = 1;
// Puts go on from here, so that their keys are none of the loaded ones.
constexpr uint64_t kFirstFresh = uint64_t{1} << 40;
// So many calls are timed before the clock stops and what they got is compared.
constexpr uint64_t kMaxCallsBetweenChecks = 64;

// Times one call and counts it.
template <typename Call>
absl::Status Time(Measured* measured, uint64_t chunks, uint64_t bytes, const Call& call) {
  const auto begin = steady_clock::now();
  const absl::Status status = call();
  const auto took = steady_clock::now() - begin;
  measured->seconds += std::chrono::duration<double>(took).count();
  if (!status.ok()) return status;
  measured->latency.Record(static_cast<uint64_t>(std::chrono::nanoseconds(took).count()));
  ++measured->ops;
  measured->chunks += chunks;
  measured->bytes += bytes;
  return absl::OkStatus();
}

}  // namespace

absl::string_view OperationName(Operation operation) {
  switch (operation) {
    case Operation::kGet:
      return "get";
    case Operation::kPut:
      return "put";
    case Operation::kLookup:
      return "lookup";
  }
  return "?";
}

absl::StatusOr<Operation> ParseOperation(absl::string_view name) {
  for (const Operation operation : {Operation::kGet, Operation::kPut, Operation::kLookup}) {
    if (OperationName(operation) == name) return operation;
  }
  return absl::InvalidArgumentError(absl::StrCat("no operation ", name));
}

absl::StatusOr<std::unique_ptr<Slices>> Slices::Create(std::unique_ptr<Contestant> contestant,
                                                       uint64_t region_bytes) {
  KVKEEP_ASSIGN_OR_RETURN(bench::SharedPages targets, bench::SharedPages::Create(region_bytes, ""));
  std::unique_ptr<Slices> slices(new Slices(std::move(contestant), std::move(targets)));
  KVKEEP_ASSIGN_OR_RETURN(slices->sources_, slices->contestant_->PutMemory(region_bytes));
  if (slices->sources_.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(bench::SharedPages sources,
                            bench::SharedPages::Create(region_bytes, ""));
    slices->own_sources_ = std::make_unique<bench::SharedPages>(std::move(sources));
    slices->sources_ = slices->own_sources_->memory();
  }
  return slices;
}

std::span<const std::byte> Slices::Payload(const ChunkKey& key) const {
  return sources_.subspan(bench::PayloadOf(key) * size_, size_);
}

std::span<std::byte> Slices::Target(uint64_t number) const {
  return targets_.memory().subspan(number % (targets_.memory().size() / size_) * size_, size_);
}

absl::Status Slices::Load(uint64_t size, uint64_t keys) {
  KVKEEP_CHECK(size > 0 && size <= sources_.size() && size <= targets_.memory().size());
  KVKEEP_RETURN_IF_ERROR(contestant_->Clear());
  const uint64_t payloads = sources_.size() / size;
  if (size != size_) {
    size_ = size;
    for (uint64_t i = 0; i < payloads; ++i) {
      bench::FillPayload(kSeed, i, sources_.subspan(i * size, size));
    }
  }
  keys_.clear();
  for (uint64_t i = 0; i < keys; ++i) {
    keys_.push_back(bench::MakeKey(kSeed, i, i % payloads));
    KVKEEP_RETURN_IF_ERROR(contestant_->Put(keys_.back(), Payload(keys_.back())));
  }
  return absl::OkStatus();
}

absl::StatusOr<Measured> Slices::Run(Operation operation, uint64_t batch, double seconds) {
  KVKEEP_CHECK(!keys_.empty());
  Measured measured;
  switch (operation) {
    case Operation::kGet:
      KVKEEP_RETURN_IF_ERROR(RunGets(seconds, &measured));
      break;
    case Operation::kPut:
      KVKEEP_RETURN_IF_ERROR(RunPuts(seconds, &measured));
      break;
    case Operation::kLookup:
      KVKEEP_RETURN_IF_ERROR(RunLookups(batch, seconds, &measured));
      break;
  }
  return measured;
}

absl::Status Slices::RunGets(double seconds, Measured* measured) {
  // A call's bytes are compared before the next round overwrites them.
  const uint64_t at_once = std::min(targets_.memory().size() / size_, kMaxCallsBetweenChecks);
  while (measured->seconds < seconds) {
    const uint64_t first = next_get_;
    for (uint64_t i = 0; i < at_once && measured->seconds < seconds; ++i, ++next_get_) {
      const ChunkKey& key = keys_[next_get_ % keys_.size()];
      const std::span<std::byte> target = Target(next_get_);
      KVKEEP_RETURN_IF_ERROR(
          Time(measured, 1, size_, [&] { return contestant_->Get(key, target); }));
    }
    for (uint64_t i = first; i < next_get_; ++i) {
      Compare(keys_[i % keys_.size()], Target(i), measured);
    }
  }
  return absl::OkStatus();
}

absl::Status Slices::RunPuts(double seconds, Measured* measured) {
  const uint64_t payloads = sources_.size() / size_;
  while (measured->seconds < seconds) {
    ChunkKey key;
    for (uint64_t i = 0; i < kMaxCallsBetweenChecks && measured->seconds < seconds; ++i) {
      key = bench::MakeKey(kSeed, kFirstFresh + next_put_, next_put_ % payloads);
      ++next_put_;
      KVKEEP_RETURN_IF_ERROR(
          Time(measured, 1, size_, [&] { return contestant_->Put(key, Payload(key)); }));
    }
    KVKEEP_RETURN_IF_ERROR(contestant_->Get(key, Target(0)));
    Compare(key, Target(0), measured);
  }
  return absl::OkStatus();
}

absl::Status Slices::RunLookups(uint64_t batch, double seconds, Measured* measured) {
  batch = std::min<uint64_t>(batch, keys_.size());
  while (measured->seconds < seconds) {
    if (next_lookup_ + batch > keys_.size()) next_lookup_ = 0;
    const absl::Span<const ChunkKey> keys = absl::MakeSpan(keys_).subspan(next_lookup_, batch);
    next_lookup_ += batch;
    uint64_t found = 0;
    KVKEEP_RETURN_IF_ERROR(Time(measured, batch, 0, [&] {
      const absl::StatusOr<uint64_t> result = contestant_->Lookup(keys);
      found = result.value_or(0);
      return result.status();
    }));
    if (found != batch) {
      return absl::DataLossError(absl::StrCat("a lookup found ", found, " of ", batch, " keys"));
    }
  }
  return absl::OkStatus();
}

void Slices::Compare(const ChunkKey& key, std::span<const std::byte> got, Measured* measured) {
  if (!keeps_bytes_) return;
  measured->verified_bytes += got.size();
  measured->wrong_bytes += bench::CountWrong(kSeed, key, got);
}

}  // namespace kvkeep::compare
