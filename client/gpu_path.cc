#include "client/gpu_path.h"

#include <utility>

#include "client/gpu/worker_gpu.h"
#include "client/internal/await.h"
#include "client/router.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {

absl::StatusOr<PinnedArena> GpuPath::PinArena(const PinArenaOptions& options) {
  KVKEEP_ASSIGN_OR_RETURN(auto arena, client_->router_->Pick()->Arena());
  return PinnedArena::Make(std::move(arena), options);
}

absl::StatusOr<GpuRegion> GpuPath::Register(const GpuRange& range, Deadline deadline) {
  KVKEEP_ASSIGN_OR_RETURN(const auto gpu, WorkerGpu::Load(range.library));
  KVKEEP_ASSIGN_OR_RETURN(GpuMemory memory, gpu->Export(range.address, range.bytes));
  memory.reused = range.reused;
  return Register(std::move(memory), deadline);
}

absl::StatusOr<GpuRegion> GpuPath::Register(GpuMemory memory, Deadline deadline) {
  return client_->router_->Pick()->RegisterGpuMemory(std::move(memory), deadline);
}

void GpuPath::Put(const Namespace& ns, std::vector<GpuPutChunk> chunks,
                  const GpuPutOptions& options, Callback<PutResult> done) {
  Transport* const transport = client_->router_->PickForLocal();
  auto binding = client_->router_->Bind(ns.state_, transport);
  if (!binding.ok()) return std::move(done)(binding.status());
  transport->PutFromGpu(*binding, ns.spec(), std::move(chunks), options, std::move(done));
}

void GpuPath::Get(const Namespace& ns, std::vector<GpuGetChunk> chunks,
                  const GpuGetOptions& options, Callback<GetResult> done) {
  Transport* const transport = client_->router_->PickForLocal();
  auto binding = client_->router_->Bind(ns.state_, transport);
  if (!binding.ok()) return std::move(done)(binding.status());
  transport->GetToGpu(*binding, ns.spec(), std::move(chunks), options, std::move(done));
}

absl::StatusOr<PutResult> GpuPath::Put(const Namespace& ns, std::vector<GpuPutChunk> chunks,
                                       const GpuPutOptions& options) {
  return client_->router_->Await<absl::StatusOr<PutResult>>(
      [&](auto done) { Put(ns, std::move(chunks), options, std::move(done)); });
}

absl::StatusOr<GetResult> GpuPath::Get(const Namespace& ns, std::vector<GpuGetChunk> chunks,
                                       const GpuGetOptions& options) {
  return client_->router_->Await<absl::StatusOr<GetResult>>(
      [&](auto done) { Get(ns, std::move(chunks), options, std::move(done)); });
}

GpuStats GpuPath::stats() const {
  Transport* const local = client_->router_->Of(Path::kLocal);
  return local == nullptr ? GpuStats() : local->gpu_stats();
}

}  // namespace kvkeep::client
