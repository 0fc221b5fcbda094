// BulkPut: one put by the bulk door: receives payload straight into the places where it stays,
// checksums each piece there, and compares the checksums with those that came behind the payload.
//
// The connection asks for the places of the bytes that come next, and says how many came. One
// thread at a time. Destroying it aborts the chunk in progress.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/uio.h>

#include <span>
#include <vector>

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/observe/server_state.h"
#include "server/requests/put_intake.h"
#include "tiers/store/store.h"

namespace kvkeep {

class BulkPut {
 public:
  // A piece in place may lie in this many runs; further ones are received by the next read.
  static constexpr size_t kMostRuns = 16;

  // Both must outlive it. `caller`: the connection's tenant.
  BulkPut(Store* store, ServerState* state, TenantId caller);

  // Takes the message of a frame whose payload has `payload_bytes` bytes. An error ends the call.
  absl::Status Open(v1::PutFrame frame, uint64_t payload_bytes);
  // Adds the places of bytes that come next, up to the end of a piece at most. `scratch` is for
  // bytes that nobody wants. REQUIRES: not complete().
  void AddPlaces(std::span<std::byte> scratch, std::vector<iovec>* places);
  // Bytes are in these places. An error ends the call.
  absl::Status Came(uint64_t bytes);
  // Returns how many bytes of the frame's payload, with its trailer, are to come.
  uint64_t left() const { return frame_bytes_ - came_; }
  bool complete() const { return left() == 0; }
  // REQUIRES: complete().
  absl::StatusOr<PutIntake::FinishedChunk> Finish();

 private:
  absl::Status CameOfPayload(uint64_t bytes);

  ServerCounters* const counters_;
  PutIntake intake_;
  uint64_t payload_bytes_ = 0, frame_bytes_ = 0;  // of the frame: the chunk's; with the trailer
  uint64_t came_ = 0;
  std::vector<uint64_t> trailer_;  // the client's checksums
};

}  // namespace kvkeep
