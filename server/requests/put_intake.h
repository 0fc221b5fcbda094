// PutIntake: the chunks of one call that puts, from their headers to their answers, whichever way
// their bytes come.
//
//   OpenStream, then for each chunk: OpenChunk -> Take, until all came -> Finish
//
// Headers are checked, space is reserved, and payload is counted and charged. The caller moves the
// bytes: it appends them to reservation(), or writes them into their places and calls ChecksumPiece
// there. Without a reservation the answer is known already, and the caller throws the payload away.
//
// An error ends the call: the client broke the protocol (InvalidArgument), its session is gone
// (FailedPrecondition), or its tenant is over a rate (ResourceExhausted). Destroying this aborts
// the chunk in progress. One thread at a time.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/requests/chunk_put.h"
#include "server/requests/server_counters.h"
#include "tiers/store/store.h"

namespace kvkeep {

class PutIntake {
 public:
  struct FinishedChunk {
    uint32_t ordinal = 0;
    ChunkPut put;

    v1::PutResult Result() const;
  };

  // Both must outlive the intake. `caller`: the tenant that puts.
  PutIntake(Store* store, ServerCounters* counters, TenantId caller);

  // Takes what a frame has of the stream's header: only the first frame has it. Null: nothing.
  absl::Status OpenStream(const v1::PutStreamHeader* header);
  // Takes a chunk's header. REQUIRES: the stream is open.
  absl::Status OpenChunk(v1::PutChunkHeader header);
  // Ends the chunk in progress without a result.
  absl::Status AbortChunk();

  bool in_progress() const { return chunk_.has_value(); }
  // All up to expects_checksum are about the chunk in progress. REQUIRES: there is one.
  uint64_t payload_bytes() const { return chunk_->payload_bytes; }
  uint64_t received_bytes() const { return chunk_->received_bytes; }
  bool complete() const { return received_bytes() == payload_bytes(); }
  // Returns where the payload belongs. Null: nowhere. Valid until the chunk is finished, aborted or
  // rejected.
  Reservation* reservation();
  // The client sent the checksum of the whole payload.
  bool expects_checksum() const { return chunk_->expected_checksum.has_value(); }

  // Counts the next `bytes` of payload, and charges them where they are thrown away.
  // InvalidArgument if the chunk has not so many left. Ok without a chunk if it is none.
  absl::Status Take(uint64_t bytes);
  // Compares a filled piece with the checksum that the client sent of it. Rejects the chunk when
  // they differ, and returns false. REQUIRES: reservation().
  bool CheckPiece(size_t piece, uint64_t expected);
  // Seals the chunk, or rejects it as WRONG_CHECKSUM. `came`: XXH3-64 of the payload that came.
  // None: it is made of the bytes in place, if the client sent one. REQUIRES: complete(), and the
  // payload fills reservation() if there is one.
  absl::StatusOr<FinishedChunk> Finish(std::optional<uint64_t> came = std::nullopt);
  // Ends the call after the client's last frame. InvalidArgument: a chunk is unfinished; it is
  // aborted.
  absl::Status End();

 private:
  struct Chunk {
    uint32_t ordinal = 0;
    ChunkPut put;
    uint64_t payload_bytes = 0;
    uint64_t received_bytes = 0;
    std::string metadata;
    std::optional<uint64_t> expected_checksum;
    bool within_rate = false;  // the store charged it, and it was within the rate
  };

  absl::Status Reserve(const v1::PutChunkHeader& header, const ChunkKey& key, Chunk& chunk);

  Store* const store_;
  ServerCounters* const counters_;
  const TenantId caller_;
  bool stream_open_ = false;
  SessionToken session_;
  NamespaceDigest ns_;
  NamespaceSpec spec_;
  uint32_t next_ordinal_ = 0;
  std::optional<Chunk> chunk_;  // in progress
};

}  // namespace kvkeep
