#include "client/grpc/put_answers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <string>
#include <utility>

#include "client/transport/check_call.h"

namespace kvkeep::client {
namespace {

PutStatus FromWire(v1::PutStatus status) {
  switch (status) {
    case v1::PUT_STATUS_STORED:
      return PutStatus::kStored;
    case v1::PUT_STATUS_PRESENT:
      return PutStatus::kPresent;
    default:
      return PutStatus::kRejected;
  }
}

}  // namespace

PutAnswers::PutAnswers(const std::vector<PutChunk>* chunks, const NamespaceSpec& spec)
    : chunks_(*chunks), result_{.chunks = std::vector<PutOutcome>(chunks->size()), .error = {}} {
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    std::string reason = WhyRejected(chunks_[i], spec);
    if (reason.empty()) {
      sent_.push_back(i);
    } else {
      result_.chunks[i] = {.status = PutStatus::kRejected, .message = std::move(reason)};
    }
  }
}

absl::StatusOr<uint64_t> PutAnswers::Take(const v1::PutResult& answer) {
  if (answer.ordinal() >= sent_.size()) {
    return absl::InternalError(
        absl::StrCat("put: the daemon answered chunk ", answer.ordinal(), " of ", sent_.size()));
  }
  const uint32_t chunk = sent_[answer.ordinal()];
  PutOutcome& outcome = result_.chunks[chunk];
  outcome.status = FromWire(answer.status());
  if (outcome.status != PutStatus::kRejected) return PayloadBytes(chunks_[chunk]);
  outcome.message = absl::StrCat(v1::RejectReason_Name(answer.reason()), ": ", answer.message());
  return 0;
}

absl::StatusOr<PutResult> PutAnswers::Finish(absl::Status end) {
  const size_t unfinished =
      std::count_if(result_.chunks.begin(), result_.chunks.end(),
                    [](const PutOutcome& o) { return o.status == PutStatus::kUnfinished; });
  result_.error = std::move(end);
  if (result_.error.ok() && unfinished > 0) {
    result_.error = absl::InternalError("put: the daemon ended the stream without all results");
  }
  if (unfinished == result_.chunks.size() && !result_.error.ok()) return result_.error;
  return std::move(result_);
}

}  // namespace kvkeep::client
