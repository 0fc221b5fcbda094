#include "server/requests/chunk_put.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

absl::StatusOr<ChunkPut::Reserved> ChunkPut::Reserve(Store& store, const SessionToken& session,
                                                     const PutRequest& request) {
  KVKEEP_CHECK(answer_ == Answer::kNone && !reservation_);
  id_ = {.ns = request.ns, .key = request.key, .part = request.part};
  durable_ = request.durable;
  KVKEEP_ASSIGN_OR_RETURN(ReserveResult reserved, store.Reserve(session, request));
  switch (reserved.outcome) {
    case ReserveResult::Outcome::kReserved:
      reservation_ = std::move(reserved.reservation);
      return Reserved::kSpace;
    case ReserveResult::Outcome::kPresent:
      answer_ = Answer::kPresent;
      return Reserved::kAnswered;
    case ReserveResult::Outcome::kRejected:
      break;
  }
  if (reserved.ask_again) return Reserved::kAskAgain;
  Reject(reserved.reason, std::move(reserved.message));
  return reserved.over_rate ? Reserved::kOverRate : Reserved::kAnswered;
}

bool ChunkPut::CheckPayload(uint64_t expected, uint64_t came) {
  if (expected == came) return true;
  Reject(RejectReason::kWrongChecksum,
         absl::StrFormat("checksum: %016x; the payload that came has %016x", expected, came));
  return false;
}

absl::Status ChunkPut::Seal(std::span<const std::byte> metadata) {
  const absl::StatusOr<SealOutcome> sealed = reservation_.Seal(metadata);
  if (sealed.ok()) {
    answer_ = *sealed == SealOutcome::kStored ? Answer::kStored : Answer::kPresent;
  } else if (absl::IsResourceExhausted(sealed.status())) {
    Reject(RejectReason::kLimit, std::string(sealed.status().message()));
  } else {
    return sealed.status();
  }
  return absl::OkStatus();
}

void ChunkPut::Reject(RejectReason reason, std::string message) {
  if (reservation_) reservation_.Abort();
  answer_ = Answer::kRejected;
  reason_ = reason;
  message_ = std::move(message);
}

void ChunkPut::OnDurable(const absl::Status& status) {
  if (status.ok()) return;
  Reject(RejectReason::kNotDurable,
         absl::StrCat("durable: in G2, but not on stable storage: ", status.message()));
}

}  // namespace kvkeep
