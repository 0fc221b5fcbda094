// GpuTester: a PeerTester whose client has memory of a GPU, in FakeGpuDevice.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/server/local/peer_tester.h"

namespace kvkeep {

inline constexpr uint32_t kBytes = 40'000;  // of a chunk, if the size does not matter

class GpuTester : public PeerTester {
 public:
  using PeerTester::PeerTester;

  FakeGpuDevice& device() { return gpu.device(); }

  static local::RegisterGpuMemory Registration(uint64_t memory, uint64_t bytes,
                                               uint64_t generation = 1) {
    return {.handle = FakeGpuHandle(memory),
            .allocation_bytes = bytes,
            .bytes = bytes,
            .generation = generation,
            .kind = local::kGpuIpcHandle};
  }
  // Registers all of the memory. Returns its number.
  uint32_t Register(uint64_t memory, uint64_t generation = 1) {
    const SentMessage reply =
        AskFor(local::Kind::kRegisterGpuMemory,
               Registration(memory, device().memory(memory).size(), generation));
    REQUIRE(reply.status == absl::OkStatus());
    return reply.As<local::RegisterGpuReply>().registration;
  }
  // Allocates and registers memory.
  uint32_t Add(std::vector<std::byte> bytes) {
    return Register(device().Allocate(std::move(bytes)));
  }
  SentMessage Unregister(uint32_t registration, uint64_t generation = 1) {
    return AskFor(
        local::Kind::kUnregisterGpuMemory,
        local::UnregisterGpuMemory{.registration = registration, .generation = generation});
  }
  std::string Put(const std::vector<TestGpuChunk>& chunks) {
    return ReadAnswers(Ask(local::Kind::kPutFromGpu, GpuPutBody(ns, chunks)));
  }
  uint64_t TellPut(const std::vector<TestGpuChunk>& chunks) {
    return Tell(local::Kind::kPutFromGpu, GpuPutBody(ns, chunks));
  }
  std::string GetToGpu(const std::vector<TestGpuChunk>& chunks, uint64_t lease = 0) {
    return ReadGpuAnswers(Ask(local::Kind::kGetToGpu, GpuGetBody(ns, chunks, {.lease = lease})));
  }
  // Returns the chunk's bytes by an ordinary get, without the GPU; empty if it is a miss.
  std::vector<std::byte> Look(uint64_t name) {
    const TestFound found = Get({name});
    if (found.places.empty()) return {};
    std::vector<std::byte> payload = Payload(found.places[0]);
    Release(found.head.lease);
    return payload;
  }
  uint64_t reserved_bytes() { return store().snapshot().g2.reserved_bytes; }
};

}  // namespace kvkeep
