#include "server/gpu/gpu_path.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "server/gpu/hidden_gpus.h"
#include "tiers/base/check.h"
#include "tiers/base/units.h"
#if defined(KVKEEP_HAS_GPU)
#include "server/gpu/cuda_path.h"
#endif

namespace kvkeep {
namespace {

class GpuPathOff final : public GpuPath {
 public:
  explicit GpuPathOff(std::string why) : why_(std::move(why)) {}

  void Register(const GpuUuid&, GpuMemory, RegisterDone done) override {
    std::move(done)(
        absl::FailedPreconditionError(absl::StrCat("the GPU path of this daemon is off: ", why_)));
  }
  void KeepForEver(std::shared_ptr<const void>) override { KVKEEP_CHECK(false); }
  bool Tick() override { return true; }
  Stats stats() const override { return {}; }
  std::string describe() const override { return absl::StrCat("off: ", why_); }
  bool Stop(std::chrono::nanoseconds) override { return true; }

 private:
  const std::string why_;
};

#if defined(KVKEEP_HAS_GPU)
GpuArena MemoryOf(Arena* arena) {
  GpuArena memory{.segment_bytes = arena->segment_blocks().value() * kBlockBytes};
  for (size_t i = 0; i < arena->segment_count(); ++i) {
    memory.segments.push_back(arena->SegmentMemory(i));
  }
  memory.is_whole = [arena](size_t segment) { return arena->SegmentIsWhole(segment); };
  return memory;
}

absl::StatusOr<std::unique_ptr<GpuPath>> OpenDriver(Arena* arena, const Clock* clock) {
  absl::StatusOr<std::unique_ptr<GpuDriver>> driver = GpuDriver::Load({});
  if (!driver.ok()) return driver.status();
  CudaPathOptions options;
  options.arena = MemoryOf(arena);
  return CudaPath::Create(*std::move(driver), std::move(options), clock);
}
#else
absl::StatusOr<std::unique_ptr<GpuPath>> OpenDriver(Arena*, const Clock*) {
  return absl::UnimplementedError("this kvkeepd was built without CUDA's headers");
}
#endif

}  // namespace

std::unique_ptr<GpuPath> MakeGpuPathOff(std::string why) {
  return std::make_unique<GpuPathOff>(std::move(why));
}

absl::StatusOr<std::unique_ptr<GpuPath>> OpenGpuPath(GpuMode mode, Arena* arena,
                                                     const Clock* clock) {
  if (mode == GpuMode::kOff) return MakeGpuPathOff("gpu.mode is off");
  absl::StatusOr<std::unique_ptr<GpuPath>> path = OpenDriver(arena, clock);
  if (path.ok()) return path;
  std::string why(path.status().message());
  const std::string hidden = WhyGpusAreHidden("");
  if (!hidden.empty()) absl::StrAppend(&why, "; ", hidden);
  if (mode == GpuMode::kAuto) return MakeGpuPathOff(std::move(why));
  return absl::FailedPreconditionError(
      absl::StrCat("gpu.mode is required: ", why, "; ",
                   hidden.empty() ? "install NVIDIA's driver" : "open the devices to this process",
                   ", or set gpu.mode to auto"));
}

}  // namespace kvkeep
