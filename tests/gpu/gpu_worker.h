// GpuWorker: an engine's worker on the bare local protocol, in the test's own process: a session of
// a real kvkeepd, memory of the (fake) GPU, and requests. It keeps the protocol's rule: it writes
// its memory only while no request for it waits for a reply.
#pragma once

#include <poll.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/exporter.h"
#include "tests/gpu/gpu_session.h"
#include "tests/server/local/bodies.h"
#include "tests/server/local/socket_client.h"

namespace kvkeep {

inline local::RegisterGpuMemory GpuRangeOf(const GpuSession& gpu, uint64_t bytes,
                                           uint64_t generation) {
  local::RegisterGpuMemory range{.allocation_bytes = bytes,
                                 .bytes = bytes,
                                 .generation = generation,
                                 .kind = local::kGpuIpcHandle};
  CUuuid uuid = {};
  GpuSession::Require(gpu.driver().DeviceGetUuid(&uuid, gpu.device()));
  std::memcpy(range.gpu_uuid.data(), uuid.bytes, range.gpu_uuid.size());
  return range;
}

inline local::RegisterGpuMemory GpuRangeOf(const GpuSession& gpu, const CUipcMemHandle& handle,
                                           uint64_t bytes, uint64_t generation) {
  local::RegisterGpuMemory range = GpuRangeOf(gpu, bytes, generation);
  std::memcpy(range.handle.data(), handle.reserved, range.handle.size());
  return range;
}

class GpuWorker : public SocketClient {
 public:
  explicit GpuWorker(const std::string& path) : SocketClient(path) { Open(); }

  absl::StatusOr<uint32_t> TryRegister(const local::RegisterGpuMemory& range, int fd = -1) {
    const std::span<const int> fds(&fd, fd < 0 ? 0 : 1);
    const SentMessage reply =
        Ask(local::Kind::kRegisterGpuMemory, std::as_bytes(std::span(&range, 1)), fds);
    if (!reply.status.ok()) return reply.status;
    return reply.As<local::RegisterGpuReply>().registration;
  }
  uint32_t Register(const local::RegisterGpuMemory& range, int fd = -1) {
    const absl::StatusOr<uint32_t> number = TryRegister(range, fd);
    REQUIRE(number.status() == absl::OkStatus());
    return *number;
  }
  absl::Status Unregister(uint32_t registration, uint64_t generation) {
    const local::UnregisterGpuMemory request{.registration = registration,
                                             .generation = generation};
    return Ask(local::Kind::kUnregisterGpuMemory, std::as_bytes(std::span(&request, 1))).status;
  }
  std::string PutFromGpu(const std::vector<TestGpuChunk>& chunks, uint32_t timeout_ms = 0) {
    return ReadAnswers(Ask(local::Kind::kPutFromGpu, GpuPutBody(ns, chunks, timeout_ms)));
  }
  std::string GetToGpu(const std::vector<TestGpuChunk>& chunks) {
    return ReadGpuAnswers(Ask(local::Kind::kGetToGpu, GpuGetBody(ns, chunks)));
  }
  // Reads by shared memory. Returns empty for a miss.
  std::vector<std::byte> Look(uint64_t name) {
    const TestFound found = Get({name});
    return found.places.empty() ? std::vector<std::byte>() : Payload(found.places[0]);
  }
};

}  // namespace kvkeep
