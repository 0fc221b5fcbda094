// PeerMemory: one peer's requests for memory of the client that puts are read from: staging memory,
// which copy threads make, and memory that the client registers. One thread, the loop's.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>

#include "proto/local/message.h"
#include "server/local/context.h"
#include "server/local/peer_replies.h"
#include "server/local/peer_session.h"
#include "server/local/session_memory.h"
#include "server/local/staging_share.h"

namespace kvkeep {

class PeerMemory : public std::enable_shared_from_this<PeerMemory> {
 public:
  PeerMemory(std::shared_ptr<const LocalContext> context, std::shared_ptr<PeerSession> session,
             std::shared_ptr<PeerReplies> replies);

  // ---- requests; those that succeed are answered, Staging when the memory is made
  absl::Status Staging(const local::Message& message);
  // Takes the descriptor that came with the message.
  absl::Status Register(local::Message& message);
  absl::Status Unregister(const local::Message& message);

  // What the session's puts may name.
  const SessionMemory& regions() const { return regions_; }

 private:
  // Returns how much staging memory to make for a client that asked for `asked` bytes.
  StagingWish WishFor(uint64_t asked) const;
  void OnStagingMade(uint64_t id, absl::StatusOr<std::shared_ptr<StagingMemory>> made);

  const std::shared_ptr<const LocalContext> context_;
  const std::shared_ptr<PeerSession> session_;
  const std::shared_ptr<PeerReplies> replies_;
  SessionMemory regions_;
};

}  // namespace kvkeep
