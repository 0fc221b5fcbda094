// Built without CUDA's headers: there is no GPU here.
#include "tools/bench/client/gpu_worker.h"

namespace kvkeep::bench {

absl::StatusOr<std::unique_ptr<GpuWorker>> GpuWorker::Open() {
  return absl::UnimplementedError("this kvkeep-bench-client was built without CUDA's headers");
}

}  // namespace kvkeep::bench
