// The operations that only the local path has: chunks are leased and laid open, not copied.
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/operation.h"
#include "tools/kvkeep/generator.h"

namespace kvkeep::bench {
namespace {

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
  // A run that is missing: as wrong as can be.
  return {.bytes = end - begin, .wrong = all.wrong + (end - begin - all.bytes)};
}

class InPlaceGet : public OneCall<InPlaceGet, client::Acquired> {
 public:
  InPlaceGet(ClientContext* context, const CaseSpec& spec) : OneCall(context, spec) {}

  void Prepare() override {
    next_keys_ = LoadedKeys(context_, spec_.size, NextFirst(&context_, spec_), spec_.batch);
  }
  // The lease of the call before goes back on the way.
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
  // Some pieces of each chunk, others each time; all of them when there are few.
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
    // A lease that was revoked meanwhile promised nothing.
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

}  // namespace

std::unique_ptr<Operation> MakeInPlaceGet(ClientContext* context, const CaseSpec& spec) {
  if (spec.verb == Verb::kPieces) return std::make_unique<PieceByPiece>(context, spec);
  return std::make_unique<InPlaceGet>(context, spec);
}

}  // namespace kvkeep::bench
