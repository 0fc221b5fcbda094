// The operations of the paths cuda-ipc and pinned: they move chunks between the cache and a GPU. A
// put copies to the host, a get to the GPU. One call at a time. With cuda-ipc the daemon copies.
// With pinned the client copies: from its mapping of the arena, and for puts to staging memory,
// which the daemon then reads.
#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/status_macros.h"
#include "tools/bench/client/content.h"
#include "tools/bench/client/gpu_memory.h"
#include "tools/bench/client/operation.h"

namespace kvkeep::bench {
namespace {

using client::GetStatus;

class GpuOperation : public Operation {
 public:
  GpuOperation(ClientContext* context, const CaseSpec& spec)
      : context_(*context), spec_(spec), memory_(*context->gpu) {}

  void Start(Done done) override { std::move(done)(Run()); }

 protected:
  bool daemon_copies() const { return memory_.way() == GpuWay::kDaemonCopies; }
  // Returns the whole chunk at `place`, or its part at `host`.
  GpuMemory::Part PartOf(uint64_t place, std::span<std::byte> host, uint64_t from = 0) const {
    return {.place = place, .size = spec_.size, .layout = layout_, .from = from, .host = host};
  }
  std::vector<client::GpuRun> RunsOf(uint64_t place) const {
    return memory_.Runs(place, spec_.size, layout_);
  }

  ClientContext& context_;
  const CaseSpec spec_;
  GpuMemory& memory_;
  const GpuLayout layout_{.run_bytes = spec_.run_bytes, .adjacent = spec_.adjacent};
  std::vector<ChunkKey> keys_;  // of the last prepared call
};

class GpuPut final : public GpuOperation {
 public:
  using GpuOperation::GpuOperation;

  // Writes the payloads for puts to the GPU: payload n at place n of a call.
  absl::Status FillGpu() {
    for (uint64_t i = 0; i < spec_.batch; ++i) {
      const std::span<std::byte> host = memory_.host().first(spec_.size);
      FillPayload(context_.seed, i, host);
      const GpuMemory::Part part = PartOf(i, host);
      KVKEEP_RETURN_IF_ERROR(memory_.Copy(GpuCopyWay::kToGpu, {&part, 1}));
    }
    return absl::OkStatus();
  }

  void Prepare() override {
    keys_.clear();
    from_gpu_.clear();
    from_staging_.clear();
    const uint64_t first = context_.fresh.fetch_add(spec_.batch);
    for (uint64_t i = 0; i < spec_.batch; ++i) {
      keys_.push_back(FreshKey(context_, first + i, i));
      if (daemon_copies()) {
        from_gpu_.push_back({.key = keys_[i], .runs = RunsOf(i)});
      } else {
        from_staging_.emplace_back();
        from_staging_[i].key = keys_[i];
        from_staging_[i].runs = {StagingOf(i)};
      }
    }
  }
  CallResult Run() override {
    const client::PutOptions options{.no_g3 = spec_.no_g3, .deadline = kCallDeadline};
    if (daemon_copies()) {
      return JudgePut(client::GpuPath(context_.client)
                          .Put(context_.ns, std::move(from_gpu_), {.put = options}),
                      spec_);
    }
    std::vector<GpuMemory::Part> parts;
    for (uint64_t i = 0; i < spec_.batch; ++i) parts.push_back(PartOf(i, StagingOf(i)));
    const absl::Status copied = memory_.Copy(GpuCopyWay::kToHost, parts);
    if (!copied.ok()) return {.status = copied};
    CallResult result =
        JudgePut(context_.client->Put(context_.ns, std::move(from_staging_), options), spec_);
    result.copied_bytes = result.bytes;
    return result;
  }
  VerifyResult Verify(uint64_t budget_bytes) override {
    if (keys_.empty()) return {};
    return ReadBack(&context_, keys_, spec_.size, budget_bytes);
  }

 private:
  std::span<std::byte> StagingOf(uint64_t place) const {
    return memory_.staging().subspan(place * spec_.size, spec_.size);
  }

  std::vector<client::GpuPutChunk> from_gpu_;
  std::vector<client::PutChunk> from_staging_;
};

class GpuGet final : public GpuOperation {
 public:
  using GpuOperation::GpuOperation;

  void Prepare() override {
    keys_ = LoadedKeys(context_, spec_.size, NextFirst(&context_, spec_), spec_.batch);
  }
  CallResult Run() override {
    const absl::Status status = daemon_copies() ? LetDaemonCopy() : CopyAcquired();
    got_ = status.ok();
    if (!got_) return {.status = status};
    const uint64_t bytes = spec_.batch * spec_.size;
    return {.chunks = spec_.batch, .bytes = bytes, .copied_bytes = daemon_copies() ? 0 : bytes};
  }
  // Reads the GPU's bytes back and compares them.
  VerifyResult Verify(uint64_t budget_bytes) override {
    VerifyResult all;
    for (uint64_t i = 0; got_ && i < spec_.batch && all.bytes < budget_bytes; ++i) {
      const std::span<std::byte> host = memory_.host().first(spec_.size);
      const GpuMemory::Part part = PartOf(i, host);
      const bool read = memory_.Copy(GpuCopyWay::kToHost, {&part, 1}).ok();
      const VerifyResult one = Compare(context_, keys_[i], host, 0);
      all.Add({one.bytes, read ? one.wrong : one.bytes});
    }
    return all;
  }

 private:
  absl::Status LetDaemonCopy() {
    std::vector<client::GpuGetChunk> chunks;
    for (uint64_t i = 0; i < spec_.batch; ++i) {
      chunks.push_back({.key = keys_[i], .runs = RunsOf(i)});
    }
    KVKEEP_ASSIGN_OR_RETURN(
        const auto got, client::GpuPath(context_.client)
                            .Get(context_.ns, std::move(chunks), {.deadline = kCallDeadline}));
    KVKEEP_RETURN_IF_ERROR(got.error);
    for (const auto& outcome : got.chunks) {
      if (outcome.status == GetStatus::kHit) continue;
      return absl::NotFoundError(absl::StrCat("get: ", GetStatusName(outcome.status)));
    }
    return absl::OkStatus();
  }
  absl::Status CopyAcquired() {
    KVKEEP_ASSIGN_OR_RETURN(
        const client::Acquired acquired,
        context_.client->Acquire(context_.ns, keys_, {.deadline = kCallDeadline}));
    if (acquired.chunks.size() != spec_.batch) return absl::NotFoundError("get: a miss");
    std::vector<GpuMemory::Part> parts;
    for (const client::ChunkView& view : acquired.chunks) {
      uint64_t from = 0;
      for (const std::span<const std::byte> run : view.runs) {
        // Only read, as it goes to the GPU.
        auto* const host = const_cast<std::byte*>(run.data());
        parts.push_back(PartOf(view.chunk, {host, run.size()}, from));
        from += run.size();
      }
    }
    KVKEEP_RETURN_IF_ERROR(memory_.Copy(GpuCopyWay::kToGpu, parts));
    return acquired.valid() ? absl::OkStatus() : absl::AbortedError("get: the lease was revoked");
  }

  bool got_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Operation>> MakeGpuOperation(ClientContext* context,
                                                            const CaseSpec& spec) {
  if (context->gpu == nullptr) return absl::FailedPreconditionError("no GPU was opened");
  if (spec.verb == Verb::kGet) return std::make_unique<GpuGet>(context, spec);
  auto put = std::make_unique<GpuPut>(context, spec);
  KVKEEP_RETURN_IF_ERROR(put->FillGpu());
  return put;
}

}  // namespace kvkeep::bench
