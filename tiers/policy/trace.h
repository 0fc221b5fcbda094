// Request traces in the Mooncake format: JSON lines, one request each, for replaying a policy.
//
//     {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
//
// timestamp is in ms and never goes back; hash_ids has one id per token block of the prompt, head
// first; equal id = equal prefix up to and including that block. Other fields are ignored.
//
// For tools and tests; the store never reads a trace. Free functions, thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace kvkeep {

struct TraceRequest {
  std::chrono::milliseconds timestamp{0};
  uint64_t input_tokens = 0;
  uint64_t output_tokens = 0;
  std::vector<uint64_t> hash_ids;  // head first
  uint64_t partial_chunks = 0;     // asked for behind these; nobody stores them (KeepFullChunks)
};

inline constexpr size_t kMaxTraceRequests = 10'000'000;
inline constexpr size_t kMaxTraceChain = 1 << 20;  // hash_ids of one request

// All requests of a file or stream, in its order. Blank lines are skipped. NotFound or
// PermissionDenied (the file cannot be opened), Unavailable (a read failed), InvalidArgument or
// ResourceExhausted (a line is wrong, or over a limit; "PATH:LINE: what").
absl::StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path);
// `name` stands for the path in messages; the limit is another one in tests only.
absl::StatusOr<std::vector<TraceRequest>> ParseTrace(std::istream& in, const std::string& name,
                                                     size_t max_requests = kMaxTraceRequests);

// Reduces the requests to full chunks, as the store is told of them: where a prompt ends before its
// last chunk does, moves that id into partial_chunks. It still counts as asked for, and as a miss.
void KeepFullChunks(std::vector<TraceRequest>& requests, uint64_t tokens_per_chunk);

}  // namespace kvkeep
