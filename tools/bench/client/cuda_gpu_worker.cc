// GpuWorker over NVIDIA's driver.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "gpu/copy_submit.h"
#include "gpu/open_device.h"
#include "tools/bench/client/gpu_worker.h"

namespace kvkeep::bench {
namespace {

class CudaGpuWorker final : public GpuWorker {
 public:
  explicit CudaGpuWorker(OpenedDevice opened, std::string name)
      : opened_(std::move(opened)), name_(std::move(name)) {}

  const std::string& device() const override { return name_; }

  absl::StatusOr<uint64_t> FreeBytes() override {
    size_t free = 0, total = 0;
    KVKEEP_RETURN_IF_ERROR(opened_.driver->MemGetInfo(&free, &total));
    return free;
  }

  absl::StatusOr<uint64_t> Allocate(uint64_t bytes) override {
    CUdeviceptr address = 0;
    KVKEEP_RETURN_IF_ERROR(opened_.driver->MemAlloc(&address, static_cast<size_t>(bytes)));
    return address;
  }

  absl::Status PinHost(std::span<std::byte> memory) override {
    return opened_.driver->MemHostRegister(static_cast<void*>(memory.data()), memory.size(),
                                           unsigned{CU_MEMHOSTREGISTER_PORTABLE});
  }

  absl::Status Copy(GpuCopyWay way, std::span<const Piece> pieces) override {
    const DeviceCopyWay to =
        way == GpuCopyWay::kToGpu ? DeviceCopyWay::kToGpu : DeviceCopyWay::kToHost;
    std::vector<DeviceCopy> batch;
    absl::Status submitted;
    while (!pieces.empty() && submitted.ok()) {
      batch.clear();
      const size_t count = std::min(pieces.size(), kMaxBatchCopies);
      for (const Piece& piece : pieces.first(count)) {
        batch.push_back({.device = piece.device, .host = piece.host, .bytes = piece.bytes});
      }
      submitted = SubmitCopies(*opened_.driver, batch, to, opened_.stream).status;
      pieces = pieces.subspan(count);
    }
    // Waits also after a refusal: earlier copies are under way.
    absl::Status done = opened_.driver->StreamSynchronize(opened_.stream);
    submitted.Update(std::move(done));
    return submitted;
  }

 private:
  const OpenedDevice opened_;
  const std::string name_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuWorker>> GpuWorker::Open() {
  KVKEEP_ASSIGN_OR_RETURN(OpenedDevice opened, OpenFirstDevice());
  std::array<char, 128> name{};
  KVKEEP_RETURN_IF_ERROR(
      opened.driver->DeviceGetName(name.data(), int{name.size() - 1}, opened.device));
  std::string said = absl::StrCat(name.data(), ", driver ", opened.driver->version());
  return std::make_unique<CudaGpuWorker>(std::move(opened), std::move(said));
}

}  // namespace kvkeep::bench
