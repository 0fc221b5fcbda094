#include "tools/bench/client/operation.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/units.h"
#include "tools/bench/client/content.h"
#include "tools/bench/client/cpu_time.h"
#include "tools/bench/client/payload_pool.h"
#include "tools/kvkeep/generator.h"

namespace kvkeep::bench {
namespace {

using client::GetStatus;
using client::PutStatus;

// Fresh keys of client n begin here, above all loaded ones.
constexpr uint64_t kFreshKeys = 1ull << 40;
// Limits of the payloads that the loaded chunks share.
constexpr uint64_t kMaxLoadedBytes = 128 * kMiB;
constexpr uint64_t kMaxLoadedPayloads = 64;

class Put final : public OneCall<Put, client::PutResult> {
 public:
  Put(ClientContext* context, const CaseSpec& spec) : OneCall(context, spec) {}

  void Prepare() override {
    const uint64_t payloads = context_.pool->count(spec_.size);
    const uint64_t first = context_.fresh.fetch_add(spec_.batch);
    chunks_.assign(spec_.batch, {});
    keys_.clear();
    for (uint64_t i = 0; i < spec_.batch; ++i) {
      const uint64_t payload = (first + i) % payloads;
      keys_.push_back(FreshKey(context_, first + i, payload));
      chunks_[i].key = keys_.back();
      chunks_[i].runs = {context_.pool->payload(payload, spec_.size)};
    }
  }
  template <typename... Callback>
  auto Ask(Callback&&... done) {
    return context_.client->Put(context_.ns, std::move(chunks_),
                                {.no_g3 = spec_.no_g3, .deadline = kCallDeadline},
                                std::forward<Callback>(done)...);
  }
  CallResult Judge(const absl::StatusOr<client::PutResult>& result) const {
    CallResult put = JudgePut(result, spec_);
    put.copied_bytes = context_.local ? 0 : put.bytes;
    return put;
  }
  VerifyResult Verify(uint64_t budget_bytes) override {
    if (keys_.empty()) return {};
    return ReadBack(&context_, keys_, spec_.size, budget_bytes);
  }

 private:
  std::vector<client::PutChunk> chunks_;  // of the next put
};

class Lookup final : public OneCall<Lookup, client::LookupResult> {
 public:
  Lookup(ClientContext* context, const CaseSpec& spec) : OneCall(context, spec) {}

  void Prepare() override {  // a run of keys, anywhere: its entries are spread over the table
    const uint64_t n = context_.calls.fetch_add(1);
    const uint64_t first =
        tools::MixIds(context_.seed + context_.number, n) % (spec_.keys - spec_.batch + 1);
    keys_ = LoadedKeys(context_, spec_.size, first, spec_.batch);
  }
  template <typename... Callback>
  auto Ask(Callback&&... done) {
    return context_.client->Lookup(context_.ns, keys_, {.deadline = kCallDeadline},
                                   std::forward<Callback>(done)...);
  }
  CallResult Judge(const absl::StatusOr<client::LookupResult>& result) const {
    if (!result.ok()) return {.status = result.status()};
    if (result->leading_keys >= spec_.batch) return {.chunks = spec_.batch};
    return {.status = absl::NotFoundError(absl::StrCat("lookup: only ", result->leading_keys,
                                                       " of ", spec_.batch, " keys are there"))};
  }
  VerifyResult Verify(uint64_t) override { return {}; }  // each answer was judged on arrival
};

class CopyingGet final : public OneCall<CopyingGet, client::GetResult> {
 public:
  CopyingGet(ClientContext* context, const CaseSpec& spec)
      : OneCall(context, spec), memory_(spec.size * spec.batch) {
    for (uint32_t i = 0; i < spec.batch; ++i) {
      to_.push_back(std::span(memory_).subspan(i * spec.size, spec.size));
    }
  }

  void Prepare() override {
    keys_ = LoadedKeys(context_, spec_.size, NextFirst(&context_, spec_), spec_.batch);
  }
  template <typename... Callback>
  auto Ask(Callback&&... done) {
    client::GetOptions options;
    options.deadline = kCallDeadline;
    options.destinations = to_;
    return context_.client->Get(context_.ns, keys_, std::move(options),
                                std::forward<Callback>(done)...);
  }
  CallResult Judge(const absl::StatusOr<client::GetResult>& result) {
    absl::Status status = result.ok() ? result->error : result.status();
    for (size_t i = 0; status.ok() && i < keys_.size(); ++i) {
      const client::GetOutcome& outcome = result->chunks[i];
      if (outcome.status == GetStatus::kHit && outcome.bytes == spec_.size) continue;
      status = absl::NotFoundError(absl::StrCat("get: ", GetStatusName(outcome.status)));
    }
    if (!status.ok()) {
      keys_.clear();  // nothing to verify
      return {.status = status};
    }
    return {.chunks = spec_.batch, .bytes = memory_.size(), .copied_bytes = memory_.size()};
  }
  VerifyResult Verify(uint64_t budget_bytes) override {
    VerifyResult all;
    for (size_t i = 0; i < keys_.size() && all.bytes < budget_bytes; ++i) {
      all.Add(Compare(context_, keys_[i], to_[i], 0));
    }
    return all;
  }

 private:
  std::vector<std::byte> memory_;
  std::vector<std::span<std::byte>> to_;
};

// ---------------------------------------------------------------- gets in place
//
// Gets by the local path: chunks are leased and read in place, not copied.

size_t PiecesOf(uint64_t size) { return DivideRoundUp(size, kPieceBytes); }

// Compares one piece of a chunk.
VerifyResult ComparePiece(const ClientContext& context, const ChunkKey& key,
                          const client::ChunkView& view, size_t piece) {
  const uint64_t begin = piece * kPieceBytes;
  const uint64_t end = std::min<uint64_t>(begin + kPieceBytes, view.payload_bytes);
  VerifyResult all;
  uint64_t at = 0;  // of the run, in the payload
  for (const std::span<const std::byte> run : view.runs) {
    const uint64_t from = std::max(begin, at), to = std::min<uint64_t>(end, at + run.size());
    if (from < to) {
      all.Add(Compare(context, key, run.subspan(from - at, to - from), from));
    }
    at += run.size();
  }
  // A missing run: all its bytes count as wrong.
  return {.bytes = end - begin, .wrong = all.wrong + (end - begin - all.bytes)};
}

class InPlaceGet : public OneCall<InPlaceGet, client::Acquired> {
 public:
  InPlaceGet(ClientContext* context, const CaseSpec& spec) : OneCall(context, spec) {}

  void Prepare() override {
    next_keys_ = LoadedKeys(context_, spec_.size, NextFirst(&context_, spec_), spec_.batch);
  }
  // Releases the lease of the previous call.
  template <typename... Callback>
  auto Ask(Callback&&... done) {
    held_ = client::Acquired();
    keys_.swap(next_keys_);
    return context_.client->Acquire(context_.ns, keys_, {.deadline = kCallDeadline},
                                    std::forward<Callback>(done)...);
  }
  CallResult Judge(absl::StatusOr<client::Acquired> acquired) {
    if (!acquired.ok()) return {.status = acquired.status()};
    held_ = *std::move(acquired);
    if (held_.leased_keys != spec_.batch || held_.chunks.size() != spec_.batch) {
      const uint32_t leased = held_.leased_keys;
      held_ = client::Acquired();
      return {.status = absl::NotFoundError(
                  absl::StrCat("get: leased ", leased, " of ", spec_.batch, " keys"))};
    }
    for (size_t i = 0; i < held_.chunks.size(); ++i) {
      if (held_.chunks[i].payload_bytes == spec_.size && Readable(i)) continue;
      held_ = client::Acquired();
      return {.status = absl::NotFoundError("get: a chunk is not whole in G2")};
    }
    return {.chunks = spec_.batch, .bytes = spec_.batch * spec_.size};
  }
  // Compares some pieces of each chunk, others each time; all of them if there are few.
  VerifyResult Verify(uint64_t budget_bytes) override {
    VerifyResult all;
    if (held_.chunks.empty()) return all;
    const size_t pieces = PiecesOf(spec_.size);
    const uint64_t chunk_budget = budget_bytes / held_.chunks.size();
    const size_t wanted = std::clamp<size_t>(chunk_budget / kPieceBytes, 1, pieces);
    for (const client::ChunkView& view : held_.chunks) {
      for (size_t i = 0; i < wanted && all.bytes < budget_bytes; ++i) {
        const size_t piece = tools::MixIds(context_.seed, verified_++) % pieces;
        all.Add(ComparePiece(context_, keys_[view.chunk], view, wanted == pieces ? i : piece));
      }
    }
    // A lease that was revoked meanwhile gives no promise.
    return held_.valid() ? all : VerifyResult{};
  }

 protected:
  virtual bool Readable(size_t view) const {
    return held_.pieces_ready(view) == PiecesOf(spec_.size);
  }

  std::vector<ChunkKey> next_keys_;
  client::Acquired held_;  // under keys_
  uint64_t verified_ = 0;
};

class PieceByPiece final : public InPlaceGet {
 public:
  using InPlaceGet::InPlaceGet;

  CallResult Run() override {
    const double began = WallSeconds();
    CallResult result = Judge(Ask());
    if (!result.status.ok()) return result;
    result.status = held_.WaitPieces(0, 1, kCallDeadline);
    result.first_piece_ns = static_cast<uint64_t>((WallSeconds() - began) * 1e9);
    if (result.status.ok()) result.status = held_.WaitAll(kCallDeadline);
    if (!result.status.ok()) held_ = client::Acquired();
    return result;
  }

 private:
  bool Readable(size_t) const override { return true; }  // waited for above
};

// ---------------------------------------------------------------- mixed

class Mixed final : public Operation {
 public:
  Mixed(ClientContext* context, const CaseSpec& spec) : context_(*context), spec_(spec) {
    for (Verb verb : {Verb::kGet, Verb::kPut, Verb::kLookup}) {
      CaseSpec part = spec;
      part.verb = verb;
      parts_.push_back(MakeOperation(context, part));
    }
  }
  void Prepare() override {
    last_ = &Choose();
    last_->Prepare();
  }
  CallResult Run() override { return last_->Run(); }
  void Start(Done done) override { last_->Start(std::move(done)); }
  VerifyResult Verify(uint64_t budget_bytes) override {
    return last_ == nullptr ? VerifyResult{} : last_->Verify(budget_bytes);
  }

 private:
  Operation& Choose() {
    const std::vector<uint32_t>& mix = spec_.mix;
    uint64_t at = tools::MixIds(~context_.seed, choices_++) % (mix[0] + mix[1] + mix[2]);
    size_t part = 0;
    while (at >= mix[part]) at -= mix[part++];
    return *parts_[part];
  }

  ClientContext& context_;
  const CaseSpec spec_;
  std::vector<std::unique_ptr<Operation>> parts_;
  Operation* last_ = nullptr;
  uint64_t choices_ = 0;
};

}  // namespace

uint64_t LoadedPayloads(uint64_t size) {
  return std::clamp<uint64_t>(kMaxLoadedBytes / size, 1, kMaxLoadedPayloads);
}

std::vector<ChunkKey> LoadedKeys(const ClientContext& context, uint64_t size, uint64_t first,
                                 uint64_t count) {
  const uint64_t payloads = LoadedPayloads(size);
  std::vector<ChunkKey> keys(count);
  for (uint64_t i = 0; i < count; ++i) {
    keys[i] = MakeKey(context.seed, first + i, (first + i) % payloads);
  }
  return keys;
}

ChunkKey FreshKey(const ClientContext& context, uint64_t number, uint64_t payload) {
  return MakeKey(context.seed, kFreshKeys * (context.number + 1) + number, payload);
}

uint64_t NextFirst(ClientContext* context, const CaseSpec& spec) {
  const uint64_t batches = spec.keys / spec.batch;
  // Clients begin far from each other, as a client that follows another finds its chunks in G2.
  const uint64_t start = context->number * batches / context->clients;
  return (start + context->calls.fetch_add(1)) % batches * spec.batch;
}

VerifyResult Compare(const ClientContext& context, const ChunkKey& key,
                     std::span<const std::byte> got, uint64_t offset) {
  return {.bytes = got.size(), .wrong = CountWrong(context.seed, key, got, offset)};
}

CallResult JudgePut(const absl::StatusOr<client::PutResult>& result, const CaseSpec& spec) {
  if (!result.ok()) return {.status = result.status()};
  if (!result->error.ok()) return {.status = result->error};
  for (const client::PutOutcome& outcome : result->chunks) {
    if (outcome.status == PutStatus::kStored) continue;
    return {.status = absl::ResourceExhaustedError(
                absl::StrCat("put: ", PutStatusName(outcome.status), " ", outcome.message))};
  }
  return {.chunks = spec.batch, .bytes = spec.size * spec.batch};
}

std::unique_ptr<Operation> MakeOperation(ClientContext* context, const CaseSpec& spec) {
  KVKEEP_CHECK(spec.Validate().ok());
  switch (spec.verb) {
    case Verb::kPut:
      return std::make_unique<Put>(context, spec);
    case Verb::kLookup:
      return std::make_unique<Lookup>(context, spec);
    case Verb::kMixed:
      return std::make_unique<Mixed>(context, spec);
    case Verb::kGet:
    case Verb::kPieces:
      if (!context->local) return std::make_unique<CopyingGet>(context, spec);
      if (spec.verb == Verb::kPieces) return std::make_unique<PieceByPiece>(context, spec);
      return std::make_unique<InPlaceGet>(context, spec);
  }
  return nullptr;
}

VerifyResult ReadBack(ClientContext* context, std::span<const ChunkKey> keys, uint64_t size,
                      uint64_t budget_bytes) {
  const size_t count = std::clamp<uint64_t>(budget_bytes / size, 1, keys.size());
  std::vector<std::byte> memory(size);
  const std::vector<std::span<std::byte>> to = {memory};
  VerifyResult all;
  for (size_t i = 0; i < count; ++i) {
    client::GetOptions options;
    options.deadline = kCallDeadline;
    options.destinations = to;
    const auto got = context->client->Get(context->ns, {&keys[i], 1}, std::move(options));
    // A chunk that was evicted meanwhile is no mistake.
    if (!got.ok() || got->chunks[0].status != GetStatus::kHit) continue;
    all.Add(Compare(*context, keys[i], memory, 0));
  }
  return all;
}

}  // namespace kvkeep::bench
