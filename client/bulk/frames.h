// Gets and puts over a BulkStream: the frames of proto/bulk/frame.h. Internal; functions without
// state, which block until the call has ended or its deadline passed.
//
// The daemon is not trusted: a frame that breaks the protocol ends the call with INTERNAL.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include <cstdint>
#include <string>
#include <vector>

#include "client/bulk/stream.h"
#include "client/transport/chunk_assembler.h"
#include "client/values/types.h"

namespace kvkeep::client {

// The end of a call.
struct BulkEnding {
  absl::Status status;    // the daemon's, or what went wrong on the way
  bool reusable = false;  // the connection may be used for another call
};

// Says Hello, and waits for the daemon's answer. An error of the daemon's is passed on.
absl::Status Greet(BulkStream& stream, BulkStream::Time deadline);

// Makes a get: `request` is a serialized v1.GetRequest. Chunks go to the assembler.
BulkEnding BulkGet(BulkStream& stream, const std::string& request, ChunkAssembler& assembler,
                   BulkStream::Time deadline);

// A chunk of a put: a serialized v1.PutFrame and its payload.
struct BulkChunk {
  std::string message;
  absl::Span<const std::span<const std::byte>> runs;
  uint64_t payload_bytes = 0;
};
// Makes a put of these chunks. `on_result` is given a serialized v1.PutResult for each, and returns
// an error if it is wrong.
using OnBulkResult = absl::FunctionRef<absl::Status(const std::string& result)>;
BulkEnding BulkPut(BulkStream& stream, const std::vector<BulkChunk>& chunks, OnBulkResult on_result,
                   BulkStream::Time deadline);

}  // namespace kvkeep::client
