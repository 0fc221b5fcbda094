// ChunkPut: one chunk's put, from its reservation to its answer.
//
//   Reserve -> the payload fills reservation() -> Seal -> Store::WhenDurable -> OnDurable
//                                                         if durable
//
// The gRPC and the shared-memory listener both answer a put by this object, so a put ends the same
// way on both. Each step may give the answer; no later step is taken then. A ChunkPut that is
// destroyed before its answer gives its space back. One thread at a time, except that several may
// fill the reservation, as its header says.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <span>
#include <string>

#include "tiers/store/store.h"

namespace kvkeep {

class ChunkPut {
 public:
  // v1.PutStatus.
  enum class Answer : uint8_t { kNone = 0, kStored = 1, kPresent = 2, kRejected = 3 };
  enum class Reserved : uint8_t {
    kSpace,     // the payload may fill the reservation
    kAnswered,  // present already, or rejected
    kOverRate,  // rejected, as the tenant is over a rate
    kAskAgain,  // nothing has happened: as PutRequest::asks_again
  };

  // An error means that the session or the namespace is gone; it is not the chunk's answer.
  absl::StatusOr<Reserved> Reserve(Store& store, const SessionToken& session,
                                   const PutRequest& request);
  // The reservation; empty without space, and after the answer.
  Reservation& reservation() { return reservation_; }
  const Reservation& reservation() const { return reservation_; }
  // Rejects the put when the checksums differ. Returns whether they are equal.
  bool CheckPayload(uint64_t expected, uint64_t came);
  // Like Reservation::Seal. If there is no room for the chunk, the put is rejected; an error is not
  // the chunk's answer. REQUIRES: the payload fills the reservation.
  absl::Status Seal(std::span<const std::byte> metadata);
  // Gives the space back.
  void Reject(RejectReason reason, std::string message);
  // True if the answer holds only once the chunk is on stable storage: OnDurable must be called
  // then.
  bool awaits_durable() const { return durable_ && answer_ != Answer::kRejected; }
  void OnDurable(const absl::Status& status);

  const ChunkId& id() const { return id_; }
  Answer answer() const { return answer_; }
  RejectReason reason() const { return reason_; }        // of a rejected put
  const std::string& message() const { return message_; }  // likewise: why

 private:
  ChunkId id_;
  bool durable_ = false;
  Reservation reservation_;
  Answer answer_ = Answer::kNone;
  RejectReason reason_ = RejectReason::kNone;
  std::string message_;
};

}  // namespace kvkeep
