#include "client/transport/check_call.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <numeric>

#include "tiers/base/checksum.h"
#include "tiers/base/units.h"

namespace kvkeep::client {

absl::Status CheckKeys(Keys keys, size_t parts, const ServerLimits& limits) {
  if (keys.empty()) return absl::InvalidArgumentError("keys: none given");
  if (limits.max_keys_per_call != 0 && keys.size() * parts > limits.max_keys_per_call) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts: ", parts, " of each key, the daemon takes at most ",
                     limits.max_keys_per_call, " chunks a call (limits.keys_per_call)"));
  }
  return absl::OkStatus();
}

absl::Status CheckDestinations(const GetOptions& options, size_t chunks) {
  if (options.allocate) return absl::OkStatus();
  uint64_t wanted = chunks;
  if (!options.destination_runs.empty()) {
    if (options.destination_runs.size() != chunks) {
      return absl::InvalidArgumentError(
          absl::StrCat("destination_runs: of ", options.destination_runs.size(), " of ", chunks,
                       " chunks (keys x parts)"));
    }
    wanted = std::accumulate(options.destination_runs.begin(), options.destination_runs.end(),
                             uint64_t{0});
  }
  if (options.destinations.size() == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("destinations: ", options.destinations.size(),
                                                 " where ", wanted, " are wanted, for ", chunks,
                                                 " chunks (keys x parts)"));
}

std::chrono::microseconds RemoteWaitOf(const GetOptions& options,
                                       std::chrono::steady_clock::time_point deadline) {
  using std::chrono::microseconds;
  if (options.lease != nullptr) return microseconds(0);
  const auto left = std::chrono::floor<microseconds>(deadline - std::chrono::steady_clock::now());
  return std::clamp(left / 2, microseconds(0), std::max(options.remote_wait, microseconds(0)));
}

absl::Status LeaseIsDead() {
  return absl::FailedPreconditionError(
      "lease: released already, or its session with the daemon is over; look up again");
}

uint64_t PayloadBytes(const PutChunk& chunk) {
  uint64_t bytes = 0;
  for (const auto& run : chunk.runs) bytes += run.size();
  return bytes;
}

std::string WhyRejected(const PutChunk& chunk, const NamespaceSpec& spec) {
  const PutFacts facts = {.payload_bytes = PayloadBytes(chunk),
                          .part = chunk.part,
                          .metadata_bytes = chunk.metadata.size()};
  return WhyRejected(facts, spec);
}

std::string WhyRejected(const PutFacts& chunk, const NamespaceSpec& spec) {
  const uint64_t bytes = chunk.payload_bytes;
  if (bytes < kMinPayloadBytes || bytes > kMaxPayloadBytes) {
    return absl::StrCat("payload is ", bytes, " bytes; ", kMinPayloadBytes, " to ",
                        kMaxPayloadBytes, " are allowed");
  }
  if (spec.bytes_per_part != 0 && bytes != spec.bytes_per_part) {
    return absl::StrCat("payload is ", bytes, " bytes; the namespace's bytes_per_part is ",
                        spec.bytes_per_part);
  }
  if (chunk.part >= spec.parts) {
    return absl::StrCat("part is ", chunk.part, "; the namespace has ", spec.parts, " parts");
  }
  if (chunk.metadata_bytes > kMaxTailBytes) {
    return absl::StrCat("metadata is ", chunk.metadata_bytes, " bytes; at most ", kMaxTailBytes,
                        " are allowed");
  }
  return "";
}

uint64_t PayloadChecksum(const PutChunk& chunk) {
  if (chunk.runs.size() == 1) return Xxh3(chunk.runs[0]);
  Xxh3Stream stream;
  for (const auto& run : chunk.runs) stream.Append(run);
  return stream.Digest();
}

}  // namespace kvkeep::client
