// Bodies of requests of the local protocol, for tests and for the seeds of the fuzz target.
#pragma once

#include <string>
#include <vector>

#include "proto/local/message.h"
#include "tests/sim/payload.h"
#include "tiers/store/types.h"

namespace kvkeep {

// One chunk of a put, whose payload is in staging memory from `offset` on in `runs` equal runs.
struct TestChunk {
  uint64_t name = 0;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t runs = 1;
  uint32_t flags = 0;
  uint32_t part = 0;
  uint64_t checksum = 0;
  std::string tail = "";
  uint32_t region = local::kStagingRegion;
};

// One chunk of a put from, or a get to, GPU memory: `runs` equal runs, `stride` bytes from one
// begin to the next; 0: adjacent.
struct TestGpuChunk {
  uint64_t name = 0;
  uint32_t registration = 1;
  uint64_t generation = 1;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t runs = 1;
  uint64_t stride = 0;
  uint32_t flags = 0;
  std::string tail = "";
  bool as_before = false;  // its runs equal the previous chunk's
};

std::vector<std::byte> HelloBody(const std::string& name = "test",
                                 uint16_t max_version = local::kVersion);
// Returns a request for a namespace of four parts with varying sizes.
std::vector<std::byte> NamespaceBody();
std::vector<std::byte> KeysBody(const NamespaceDigest& ns, const std::vector<uint64_t>& names,
                                LeaseMode mode,
                                const std::vector<local::ReleaseEntry>& releases = {},
                                uint64_t request_id = 0, const std::vector<uint32_t>& parts = {0});
std::vector<std::byte> GpuPutBody(const NamespaceDigest& ns,
                                  const std::vector<TestGpuChunk>& chunks, uint32_t timeout_ms = 0);
// Returns the body of a GpuPutUntil.
std::vector<std::byte> GpuPutUntilBody(const NamespaceDigest& ns,
                                       const std::vector<TestGpuChunk>& chunks,
                                       uint64_t deadline_ns);
struct GpuGetHow {
  uint64_t lease = 0;
  uint32_t timeout_ms = 0;
  bool transient = false;
};
std::vector<std::byte> GpuGetBody(const NamespaceDigest& ns,
                                  const std::vector<TestGpuChunk>& chunks,
                                  const GpuGetHow& how = {});
std::vector<std::byte> PutBody(const NamespaceDigest& ns, const std::vector<TestChunk>& chunks);
// Returns the body of a PutUntil.
std::vector<std::byte> PutUntilBody(const NamespaceDigest& ns, const std::vector<TestChunk>& chunks,
                                    uint64_t deadline_ns);
// Returns the body of a PutInParts.
std::vector<std::byte> PartsBody(const NamespaceDigest& ns, const std::vector<TestChunk>& chunks,
                                 uint64_t filled_offset);

}  // namespace kvkeep
