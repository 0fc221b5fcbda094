// The operations of the paths cuda-ipc and pinned: chunks go between the cache and a GPU. A put
// moves to the host, a get to the GPU. One call at a time.
#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/units.h"
#include "tools/bench/content.h"
#include "tools/bench/gpu_memory.h"
#include "tools/bench/operation.h"

namespace kvkeep::bench {
namespace {

using client::GetStatus;
using client::PutStatus;

class GpuOperation : public Operation {
 public:
  GpuOperation(ClientContext* context, const CaseSpec& spec) : context_(*context), spec_(spec) {}

  void Start(absl::AnyInvocable<void(CallResult) &&> done) override { std::move(done)(Run()); }

 protected:
  GpuMemory& memory() const { return *context_.gpu; }
  std::vector<client::GpuRun> RunsOf(uint64_t place) const {
    return memory().Runs(place, spec_.size, layout_);
  }
  // The whole chunk at `place`, or the part of it that lies at `host`.
  GpuMemory::Part PartOf(uint64_t place, std::span<std::byte> host, uint64_t from = 0) const {
    return {.place = place, .size = spec_.size, .layout = layout_, .from = from, .host = host};
  }
  CallResult Whole() const {
    return {.chunks = spec_.batch, .bytes = spec_.batch * spec_.size, .copied_bytes = 0};
  }

  ClientContext& context_;
  const CaseSpec spec_;
  const GpuLayout layout_{.run_bytes = spec_.run_bytes, .adjacent = spec_.adjacent};
  std::vector<ChunkKey> keys_;  // of the last call made up
};

// ---------------------------------------------------------------- puts

class GpuPut : public GpuOperation {
 public:
  using GpuOperation::GpuOperation;

  VerifyResult Verify(uint64_t budget_bytes) override {
    if (keys_.empty()) return {};
    return ReadBack(&context_, keys_, spec_.size, budget_bytes);
  }

 protected:
  // Fresh ones: the chunk at place n of a call has payload n.
  void NextKeys() {
    keys_.clear();
    const uint64_t first = context_.fresh.fetch_add(spec_.batch);
    for (uint64_t i = 0; i < spec_.batch; ++i) keys_.push_back(FreshKey(context_, first + i, i));
  }
  CallResult Judge(const absl::StatusOr<client::PutResult>& result) const {
    if (!result.ok()) return {.status = result.status()};
    if (!result->error.ok()) return {.status = result->error};
    for (const client::PutOutcome& outcome : result->chunks) {
      if (outcome.status == PutStatus::kStored) continue;
      return {.status = absl::ResourceExhaustedError(
                  absl::StrCat("put: ", PutStatusName(outcome.status), " ", outcome.message))};
    }
    return Whole();
  }
};

class DaemonCopiesPut final : public GpuPut {
 public:
  using GpuPut::GpuPut;

  void Prepare() override {
    NextKeys();
    chunks_.clear();
    for (uint64_t i = 0; i < spec_.batch; ++i) {
      chunks_.push_back({.key = keys_[i], .runs = RunsOf(i)});
    }
  }
  CallResult Run() override {
    return Judge(client::GpuPath(context_.client)
                     .Put(context_.ns, std::move(chunks_),
                          {.put = {.no_g3 = spec_.no_g3, .deadline = kCallDeadline}}));
  }

 private:
  std::vector<client::GpuPutChunk> chunks_;
};

// Into staging memory that the driver knows, which the daemon then reads.
class WorkerCopiesPut final : public GpuPut {
 public:
  using GpuPut::GpuPut;

  void Prepare() override {
    NextKeys();
    chunks_.assign(spec_.batch, {});
    for (uint64_t i = 0; i < spec_.batch; ++i) {
      chunks_[i].key = keys_[i];
      chunks_[i].runs = {memory().staging().subspan(i * spec_.size, spec_.size)};
    }
  }
  CallResult Run() override {
    std::vector<GpuMemory::Part> parts;
    for (uint64_t i = 0; i < spec_.batch; ++i) {
      parts.push_back(PartOf(i, memory().staging().subspan(i * spec_.size, spec_.size)));
    }
    const absl::Status copied = memory().Copy(GpuCopyWay::kToHost, parts);
    if (!copied.ok()) return {.status = copied};
    CallResult result = Judge(context_.client->Put(
        context_.ns, std::move(chunks_), {.no_g3 = spec_.no_g3, .deadline = kCallDeadline}));
    result.copied_bytes = result.bytes;
    return result;
  }

 private:
  std::vector<client::PutChunk> chunks_;
};

// ---------------------------------------------------------------- gets

class GpuGet : public GpuOperation {
 public:
  using GpuOperation::GpuOperation;

  void Prepare() override {
    keys_ = LoadedKeys(context_, spec_.size, NextFirst(&context_, spec_), spec_.batch);
  }
  // What is on the GPU, read back.
  VerifyResult Verify(uint64_t budget_bytes) override {
    VerifyResult all;
    for (uint64_t i = 0; got_ && i < spec_.batch && all.bytes < budget_bytes; ++i) {
      const std::span<std::byte> host = memory().host().first(spec_.size);
      const GpuMemory::Part part = PartOf(i, host);
      const bool read = memory().Copy(GpuCopyWay::kToHost, {&part, 1}).ok();
      const VerifyResult one = Compare(context_, keys_[i], host, 0);
      all = {all.bytes + one.bytes, all.wrong + (read ? one.wrong : one.bytes)};
    }
    return all;
  }

 protected:
  CallResult End(const absl::Status& status) {
    got_ = status.ok();
    return got_ ? Whole() : CallResult{.status = status};
  }

 private:
  bool got_ = false;
};

class DaemonCopiesGet final : public GpuGet {
 public:
  using GpuGet::GpuGet;

  CallResult Run() override {
    std::vector<client::GpuGetChunk> chunks;
    for (uint64_t i = 0; i < spec_.batch; ++i) {
      chunks.push_back({.key = keys_[i], .runs = RunsOf(i)});
    }
    const auto got = client::GpuPath(context_.client)
                         .Get(context_.ns, std::move(chunks), {.deadline = kCallDeadline});
    absl::Status status = got.ok() ? got->error : got.status();
    for (size_t i = 0; status.ok() && i < got->chunks.size(); ++i) {
      if (got->chunks[i].status == GetStatus::kHit) continue;
      status = absl::NotFoundError(absl::StrCat("get: ", GetStatusName(got->chunks[i].status)));
    }
    return End(status);
  }
};

// From the arena, which the driver knows.
class WorkerCopiesGet final : public GpuGet {
 public:
  using GpuGet::GpuGet;

  CallResult Run() override {
    CallResult result = End(CopyAcquired());
    result.copied_bytes = result.bytes;
    return result;
  }

 private:
  absl::Status CopyAcquired() {
    const absl::StatusOr<client::Acquired> acquired =
        context_.client->Acquire(context_.ns, keys_, {.deadline = kCallDeadline});
    if (!acquired.ok()) return acquired.status();
    if (acquired->chunks.size() != spec_.batch) return absl::NotFoundError("get: a miss");
    std::vector<GpuMemory::Part> parts;
    for (const client::ChunkView& view : acquired->chunks) {
      uint64_t from = 0;
      for (const std::span<const std::byte> run : view.runs) {
        // Only read, as it goes to the GPU.
        auto* const host = const_cast<std::byte*>(run.data());
        parts.push_back(PartOf(view.chunk, {host, run.size()}, from));
        from += run.size();
      }
    }
    const absl::Status copied = memory().Copy(GpuCopyWay::kToGpu, parts);
    if (!copied.ok()) return copied;
    return acquired->valid() ? absl::OkStatus() : absl::AbortedError("get: the lease was revoked");
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Operation>> MakeGpuOperation(ClientContext* context,
                                                            const CaseSpec& spec) {
  if (context->gpu == nullptr) return absl::FailedPreconditionError("no GPU was opened");
  GpuMemory& memory = *context->gpu;
  const bool daemon_copies = memory.way() == GpuWay::kDaemonCopies;
  if (spec.verb == Verb::kGet) {
    if (daemon_copies) return std::make_unique<DaemonCopiesGet>(context, spec);
    return std::make_unique<WorkerCopiesGet>(context, spec);
  }
  // What is put lies there from now on.
  for (uint64_t i = 0; i < spec.batch; ++i) {
    const std::span<std::byte> host = memory.host().first(spec.size);
    FillPayload(context->seed, i, host);
    const GpuMemory::Part part = {
        .place = i,
        .size = spec.size,
        .layout = {.run_bytes = spec.run_bytes, .adjacent = spec.adjacent},
        .host = host};
    const absl::Status copied = memory.Copy(GpuCopyWay::kToGpu, {&part, 1});
    if (!copied.ok()) return copied;
  }
  if (daemon_copies) return std::make_unique<DaemonCopiesPut>(context, spec);
  return std::make_unique<WorkerCopiesPut>(context, spec);
}

}  // namespace kvkeep::bench
