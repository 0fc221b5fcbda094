#include "client/local/put_reply.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <span>
#include <utility>

namespace kvkeep::client {
namespace {

const char* ReasonName(uint8_t reason) {  // as on the gRPC path: kvkeep.v1.RejectReason
  switch (reason) {
    case 1:
      return "REJECT_REASON_NO_SPACE";
    case 2:
      return "REJECT_REASON_LIMIT";
    case 3:
      return "REJECT_REASON_WRONG_SIZE";
    case 4:
      return "REJECT_REASON_WRONG_CHECKSUM";
    case 5:
      return "REJECT_REASON_DRAINING";
    case 6:
      return "REJECT_REASON_NOT_DURABLE";
    case 7:
      return "REJECT_REASON_NOT_COPIED";
    default:
      return "REJECT_REASON_UNSPECIFIED";
  }
}

PutOutcome ToOutcome(const local::PutAnswer& answer, absl::string_view message) {
  switch (answer.status) {  // kvkeep.v1.PutStatus
    case 1:
      return {.status = PutStatus::kStored, .message = ""};
    case 2:
      return {.status = PutStatus::kPresent, .message = ""};
    default:
      return {.status = PutStatus::kRejected,
              .message = absl::StrCat(ReasonName(answer.reason), ": ", message)};
  }
}

}  // namespace

uint32_t PutFlagsOf(const PutOptions& options, bool has_parent) {
  uint32_t flags = 0;
  if (has_parent) flags |= local::kPutHasParent;
  if (options.durable) flags |= local::kPutDurable;
  if (options.transient) flags |= local::kPutTransient;
  if (options.no_g3) flags |= local::kPutNoG3;
  if (options.checksum) flags |= local::kPutHasChecksum;
  return flags;
}

absl::StatusOr<std::vector<PutOutcome>> ReadPutReply(LocalSession::Reply& reply, size_t chunks) {
  local::PutReply said;
  std::vector<local::PutAnswer> answers;
  if (!reply.body.Read(&said) || said.chunks != chunks ||
      !reply.body.ReadAll(said.chunks, &answers)) {
    return absl::InternalError("local: a put's reply is not about the chunks that were put");
  }
  std::vector<PutOutcome> outcomes;
  for (size_t i = 0; i < answers.size(); ++i) {
    std::span<const std::byte> text;
    if (!reply.body.ReadBytes(answers[i].message_bytes, &text)) {
      return absl::InternalError("local: a put's reply is too short for its messages");
    }
    outcomes.push_back(
        ToOutcome(answers[i], {reinterpret_cast<const char*>(text.data()), text.size()}));
  }
  if (!reply.body.done()) return absl::InternalError("local: a put's reply is too long");
  return outcomes;
}

absl::StatusOr<PutResult> PutResultOf(PutResult result) {
  const bool nothing = std::all_of(
      result.chunks.begin(), result.chunks.end(),
      [](const PutOutcome& outcome) { return outcome.status == PutStatus::kUnfinished; });
  if (nothing && !result.error.ok()) return result.error;
  return result;
}

}  // namespace kvkeep::client
