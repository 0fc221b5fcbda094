// PutAnswers: which chunks of a put are sent, and what the daemon answers for each. Internal.
//
// Not thread-safe.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <vector>

#include "client/values/types.h"
#include "kvkeep/v1/kvkeep.pb.h"

namespace kvkeep::client {

class PutAnswers {
 public:
  // Chunks that the daemon would surely reject are rejected here and not sent. `chunks` must
  // outlive this.
  PutAnswers(const std::vector<PutChunk>* chunks, const NamespaceSpec& spec);

  // Returns the chunks to send, as indices; their places are the ordinals of the answers.
  const std::vector<uint32_t>& sent() const { return sent_; }
  // Takes one answer. Returns the payload that is in the daemon now. INTERNAL: it is of no chunk of
  // the put.
  absl::StatusOr<uint64_t> Take(const v1::PutResult& answer);
  // Returns the put's result, or its error if no chunk has a result. `end`: of the call.
  absl::StatusOr<PutResult> Finish(absl::Status end);

 private:
  const std::vector<PutChunk>& chunks_;
  PutResult result_;
  std::vector<uint32_t> sent_;
};

}  // namespace kvkeep::client
