// WorkerGpu in a build without CUDA's headers.
#include "client/gpu/worker_gpu.h"

namespace kvkeep::client {

absl::StatusOr<std::shared_ptr<WorkerGpu>> WorkerGpu::Load(const std::string&) {
  return absl::UnimplementedError("this kvkeep was built without CUDA's headers");
}

}  // namespace kvkeep::client
