#include "tools/compare/slice.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tools/bench/content.h"
#include "tools/bench/cpu_time.h"

namespace kvkeep::compare {
namespace {

using bench::Measured;
using std::chrono::steady_clock;

constexpr uint64_t kSeed = 1;
// Puts go on from here, so that their keys are none of the loaded ones.
constexpr uint64_t kFirstFresh = uint64_t{1} << 40;
// Before them all, and none of either.
constexpr uint64_t kWarmUp = kFirstFresh - 1;
// So many chunks are moved before the clock stops and what was got is compared.
constexpr uint64_t kMaxChunksBetweenChecks = 64;

// Times one call and counts it.
template <typename Call>
absl::Status Time(Measured* measured, uint64_t chunks, uint64_t bytes, const Call& call) {
  const double cpu = bench::ProcessCpuSeconds();
  const auto begin = steady_clock::now();
  const absl::Status status = call();
  const auto took = steady_clock::now() - begin;
  measured->client_cpu_seconds += bench::ProcessCpuSeconds() - cpu;
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
    case Operation::kLookupAndGet:
      return "lookup+get";
    case Operation::kPut:
      return "put";
    case Operation::kLookup:
      return "lookup";
  }
  return "?";
}

absl::StatusOr<Operation> ParseOperation(absl::string_view name) {
  for (const Operation operation :
       {Operation::kGet, Operation::kLookupAndGet, Operation::kPut, Operation::kLookup}) {
    if (OperationName(operation) == name) return operation;
  }
  return absl::InvalidArgumentError(absl::StrCat("no operation ", name));
}

absl::Status Contestant::PutAll(absl::Span<const ChunkKey> keys, Payloads payloads) {
  for (size_t i = 0; i < keys.size(); ++i) KVKEEP_RETURN_IF_ERROR(Put(keys[i], payloads[i]));
  return absl::OkStatus();
}

absl::Status Contestant::GetAll(absl::Span<const ChunkKey> keys, Targets targets) {
  for (size_t i = 0; i < keys.size(); ++i) KVKEEP_RETURN_IF_ERROR(Get(keys[i], targets[i]));
  return absl::OkStatus();
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

absl::Status Slices::Load(uint64_t size, uint64_t batch) {
  KVKEEP_CHECK(size > 0 && size <= sources_.size() && size <= targets_.memory().size());
  KVKEEP_RETURN_IF_ERROR(contestant_->Clear());
  if (size != size_) {
    size_ = size;
    for (uint64_t i = 0; i < sources_.size() / size; ++i) {
      bench::FillPayload(kSeed, i, sources_.subspan(i * size, size));
    }
  }
  batch_ = batch;
  keys_.clear();
  next_get_ = next_lookup_ = 0;
  return WarmUp();
}

absl::Status Slices::WarmUp() {
  const ChunkKey key = bench::MakeKey(kSeed, kWarmUp, 0);
  KVKEEP_RETURN_IF_ERROR(contestant_->Put(key, Payload(key)));
  KVKEEP_RETURN_IF_ERROR(LookUp({&key, 1}));
  KVKEEP_RETURN_IF_ERROR(contestant_->Get(key, Target(0)));
  return contestant_->Clear();
}

absl::StatusOr<Measured> Slices::Fill(uint64_t calls) {
  const uint64_t payloads = sources_.size() / size_;
  Measured measured;
  for (uint64_t call = 0; call < calls; ++call) {
    for (uint64_t i = 0; i < batch_; ++i) {
      keys_.push_back(bench::MakeKey(kSeed, keys_.size(), keys_.size() % payloads));
    }
    KVKEEP_RETURN_IF_ERROR(PutTimed(absl::MakeConstSpan(keys_).last(batch_), &measured));
  }
  return measured;
}

absl::StatusOr<Measured> Slices::Run(Operation operation, double seconds) {
  KVKEEP_CHECK(keys_.size() >= batch_);
  Measured measured;
  switch (operation) {
    case Operation::kGet:
    case Operation::kLookupAndGet:
      KVKEEP_RETURN_IF_ERROR(RunGets(operation == Operation::kLookupAndGet, seconds, &measured));
      break;
    case Operation::kPut:
      KVKEEP_RETURN_IF_ERROR(RunPuts(seconds, &measured));
      break;
    case Operation::kLookup:
      KVKEEP_RETURN_IF_ERROR(RunLookups(seconds, &measured));
      break;
  }
  return measured;
}

absl::Span<const ChunkKey> Slices::NextKeys(uint64_t* next) const {
  if (*next + batch_ > keys_.size()) *next = 0;
  const uint64_t first = *next;
  *next += batch_;
  return absl::MakeConstSpan(keys_).subspan(first, batch_);
}

uint64_t Slices::CallsBetweenChecks() const {
  const uint64_t chunks = std::min(targets_.memory().size() / size_, kMaxChunksBetweenChecks);
  return std::max<uint64_t>(chunks / batch_, 1);
}

absl::Status Slices::PutTimed(absl::Span<const ChunkKey> keys, Measured* measured) {
  std::vector<std::span<const std::byte>> payloads;
  for (const ChunkKey& key : keys) payloads.push_back(Payload(key));
  return Time(measured, keys.size(), keys.size() * size_,
              [&] { return contestant_->PutAll(keys, payloads); });
}

absl::Status Slices::RunGets(bool lookup_first, double seconds, Measured* measured) {
  // A call's bytes are compared before the next round overwrites them.
  const uint64_t at_once = CallsBetweenChecks();
  while (measured->seconds < seconds) {
    std::vector<std::pair<absl::Span<const ChunkKey>, uint64_t>> done;
    for (uint64_t i = 0; i < at_once && measured->seconds < seconds; ++i) {
      const absl::Span<const ChunkKey> keys = NextKeys(&next_get_);
      done.emplace_back(keys, next_target_);
      std::vector<std::span<std::byte>> targets;
      for (uint64_t j = 0; j < batch_; ++j) targets.push_back(Target(next_target_++));
      KVKEEP_RETURN_IF_ERROR(Time(measured, batch_, batch_ * size_, [&]() -> absl::Status {
        if (lookup_first) KVKEEP_RETURN_IF_ERROR(LookUp(keys));
        return contestant_->GetAll(keys, targets);
      }));
    }
    for (const auto& [keys, target] : done) Compare(keys, target, measured);
  }
  return absl::OkStatus();
}

absl::Status Slices::RunPuts(double seconds, Measured* measured) {
  const uint64_t payloads = sources_.size() / size_;
  const uint64_t at_once = std::max<uint64_t>(kMaxChunksBetweenChecks / batch_, 1);
  std::vector<ChunkKey> keys(batch_);
  std::vector<std::span<std::byte>> targets;
  for (uint64_t i = 0; i < batch_; ++i) targets.push_back(Target(i));
  while (measured->seconds < seconds) {
    for (uint64_t i = 0; i < at_once && measured->seconds < seconds; ++i) {
      for (ChunkKey& key : keys) {
        key = bench::MakeKey(kSeed, kFirstFresh + next_put_, next_put_ % payloads);
        ++next_put_;
      }
      KVKEEP_RETURN_IF_ERROR(PutTimed(keys, measured));
    }
    KVKEEP_RETURN_IF_ERROR(contestant_->GetAll(keys, targets));
    Compare(keys, 0, measured);
  }
  return absl::OkStatus();
}

absl::Status Slices::RunLookups(double seconds, Measured* measured) {
  while (measured->seconds < seconds) {
    const absl::Span<const ChunkKey> keys = NextKeys(&next_lookup_);
    KVKEEP_RETURN_IF_ERROR(Time(measured, batch_, 0, [&] { return LookUp(keys); }));
  }
  return absl::OkStatus();
}

absl::Status Slices::LookUp(absl::Span<const ChunkKey> keys) {
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t found, contestant_->Lookup(keys));
  if (found == keys.size()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a lookup found ", found, " of ", keys.size(), " keys"));
}

void Slices::Compare(absl::Span<const ChunkKey> keys, uint64_t first_target, Measured* measured) {
  if (!keeps_bytes_) return;
  for (const ChunkKey& key : keys) {
    const std::span<const std::byte> got = Target(first_target++);
    measured->verified_bytes += got.size();
    measured->wrong_bytes += bench::CountWrong(kSeed, key, got);
  }
}

}  // namespace kvkeep::compare
