#include "server/local/parts_source.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {

PartsSource::PartsSource(std::shared_ptr<const LocalContext> context, PutPlan* plan, Put* put)
    : context_(std::move(context)),
      plan_(plan),
      put_(put),
      payload_bytes_(plan->chunks().front().payload_bytes),
      memory_(context_, plan, put) {
  KVKEEP_CHECK(plan->in_parts() && plan->chunks().size() == 1);
}

bool PartsSource::filling() const { return !stopped_ && filled_bytes_ < payload_bytes_; }

size_t PartsSource::filled_pieces() const {
  return filled_bytes_ < payload_bytes_ ? filled_bytes_ / kPieceBytes : kAllPieces;
}

void PartsSource::Fetch(std::span<const PutPiece> /*pieces*/) { Look(); }

absl::Status PartsSource::Fill(const PutPiece& piece, Wait wait, Reservation* space) {
  return memory_.Fill(piece, wait, space);
}

void PartsSource::Drop() {
  Stop();  // first, as a look uses the memory only while more is waited for
  memory_.Drop();
}

void PartsSource::Look() {
  std::shared_ptr<const StagingMemory> staging;
  {
    MutexLock lock(&mu_);
    if (!filling()) return;
    look_again_ = looking_;
    if (std::exchange(looking_, true)) return;
    staging = plan_->staging();
  }
  context_->copy_executor->Post(
      [this, hold = put_->Hold(), staging = std::move(staging)]() mutable {
        Seen seen = LookOnce(*staging);
        while (seen.again) {
          Tell(seen);
          seen = LookOnce(*staging);
        }
        staging = nullptr;  // before the answer, after which the client may ask for new memory
        Tell(seen);
      });
}

PartsSource::Seen PartsSource::LookOnce(const StagingMemory& staging) {
  const std::optional<uint64_t> filled = staging.ReadWord(plan_->filled_word());
  Seen seen;
  MutexLock lock(&mu_);
  if (filling() && filled.has_value() && (*filled < filled_bytes_ || *filled > payload_bytes_)) {
    stopped_ = true;
    seen.wrong = absl::InvalidArgumentError(absl::StrCat(
        "a put in parts: ", *filled, " bytes after ", filled_bytes_, ", of ", payload_bytes_));
  } else if (filling() && filled.has_value()) {  // else the next tick or message looks
    filled_bytes_ = *filled;
  }
  // The call that stops the wait tells the put that the missing pieces are lost. Only then does it
  // make them ready.
  seen.ready_pieces = seen.wrong.ok() ? filled_pieces() : kAllPieces;
  seen.again = looking_ = std::exchange(look_again_, false) && filling();
  return seen;
}

void PartsSource::Tell(const Seen& seen) {
  if (!seen.wrong.ok()) put_->Lose(0, seen.wrong);
  put_->OnReady(seen.ready_pieces);
}

std::optional<uint64_t> PartsSource::awaited_piece() {
  MutexLock lock(&mu_);
  if (!filling()) return std::nullopt;
  return filled_bytes_ / kPieceBytes;
}

bool PartsSource::Stop() {
  MutexLock lock(&mu_);
  if (!filling()) return false;
  stopped_ = true;
  return true;
}

bool PartsSource::GiveUp(const absl::Status& why) {
  if (!Stop()) return false;
  put_->Lose(0, why);
  put_->OnReady(kAllPieces);
  return true;
}

void PartsSource::Cancel() {
  if (Stop()) put_->OnReady(kAllPieces);
}

}  // namespace kvkeep
