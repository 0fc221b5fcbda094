// GpuRig: the local transport with GPU memory, against a scripted daemon.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/local/fixture.h"
#include "tests/fakes/fake_gpu_endpoint.h"

namespace kvkeep::client {

inline constexpr uint8_t kMemory = 7;  // of the endpoint
inline constexpr uint64_t kRegionBytes = 1 * kMiB;

inline GpuMemory MemoryOf(uint8_t name) {
  GpuMemory memory;
  memory.gpu_uuid.fill(9);
  memory.handle[0] = name;
  memory.allocation_bytes = 4 * kMiB;
  memory.offset = 4096;
  memory.bytes = kRegionBytes;
  return memory;
}

// A daemon whose process ends on request, as its watcher sees it.
class WatchedProcess {
 public:
  DaemonProcess::Watch Watch() const {
    return [this](int) -> absl::StatusOr<UniqueFd> {
      return UniqueFd(fcntl(event_.get(), F_DUPFD_CLOEXEC, 0));
    };
  }
  void End() { REQUIRE(eventfd_write(event_.get(), 1) == 0); }

 private:
  const UniqueFd event_{eventfd(0, EFD_CLOEXEC)};
};

struct EndpointHolder {
  std::shared_ptr<fakes::FakeGpuEndpoint> gpu = std::make_shared<fakes::FakeGpuEndpoint>();
  WatchedProcess process;
};

struct GpuRig : EndpointHolder, LocalFixture {
  // `watch` is used instead of `process`.
  explicit GpuRig(Deadline deadline = Deadline(10'000), DaemonProcess::Watch watch = nullptr)
      : LocalFixture(deadline, watch ? std::move(watch) : process.Watch()) {
    gpu->AddMemory(kMemory, 4 * kMiB);
    daemon.SetOther([gpu = gpu](local::Kind kind, local::Message& message) {
      return gpu->Answer(kind, message);
    });
  }

  absl::StatusOr<GpuRegion> Register(uint8_t name = kMemory) {
    return transport->RegisterGpuMemory(MemoryOf(name), Deadline(0));
  }
  GpuRegion MustRegister(uint8_t name = kMemory) {
    absl::StatusOr<GpuRegion> region = Register(name);
    REQUIRE(region.status() == absl::OkStatus());
    return *std::move(region);
  }
  absl::StatusOr<PutResult> PutGpu(std::vector<GpuPutChunk> chunks, PutOptions options = {},
                                   std::shared_ptr<GpuUse> use = nullptr) {
    return Wait<absl::StatusOr<PutResult>>([&](auto done) {
      transport->PutFromGpu(ns, spec, std::move(chunks), {.put = options, .use = use},
                            std::move(done));
    });
  }
  absl::StatusOr<GetResult> GetGpu(std::vector<GpuGetChunk> chunks, GpuGetOptions options = {}) {
    return Wait<absl::StatusOr<GetResult>>([&](auto done) {
      transport->GetToGpu(ns, spec, std::move(chunks), options, std::move(done));
    });
  }
  PutStatus PutRuns(const std::string& key, std::vector<GpuRun> runs, PutOptions options = {}) {
    const auto put = PutGpu({{.key = Key(key), .runs = std::move(runs)}}, options);
    last = put.ok() ? put->error : put.status();
    return put.ok() ? put->chunks[0].status : PutStatus::kUnfinished;
  }
  GetStatus GetRuns(const std::string& key, std::vector<GpuRun> runs, GpuGetOptions options = {}) {
    const auto got = GetGpu({{.key = Key(key), .runs = std::move(runs)}}, std::move(options));
    last = got.ok() ? got->error : got.status();
    return got.ok() ? got->chunks[0].status : GetStatus::kUnfinished;
  }
  // Stops the daemon, which has no GPU memory when it starts again. Returns when the client has
  // noticed: a call before that would use the broken connection, and leave its memory in use.
  void LoseDaemon() {
    daemon.Stop();
    REQUIRE(Eventually([this] { return !transport->WaitConnected(Deadline(0)); }));
    gpu->Forget();
  }
  // Writes within the registered range.
  void Write(uint64_t offset, const std::vector<std::byte>& bytes) {
    gpu->Write(kMemory, 4096 + offset, bytes);
  }
  std::vector<std::byte> Read(uint64_t offset, uint64_t bytes) const {
    return gpu->Read(kMemory, 4096 + offset, bytes);
  }
};

}  // namespace kvkeep::client
