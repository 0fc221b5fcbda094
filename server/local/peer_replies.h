// PeerReplies: what one peer says to its client. It builds messages in memory that all peers share,
// hands them to a PeerSink, and notes how long requests took. One thread, the loop's.
//
//   Begin -> Start, append to the message, Send; or SendError -> NoteEnd, perhaps much later
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/local/message.h"
#include "server/local/context.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

// Takes a peer's messages. Called from within the peer's methods, on the loop.
class PeerSink {
 public:
  virtual ~PeerSink() = default;
  // A whole message, with the descriptors of its first packet. `message` is good for this call.
  virtual void Send(std::span<const std::byte> message, std::vector<UniqueFd> descriptors) = 0;
  // The client's end of a new event socket.
  virtual absl::StatusOr<UniqueFd> OpenEvents() = 0;
  virtual void SendEvent(std::span<const std::byte> message) = 0;
  // Closes the connection after the sent messages. The peer is told by End.
  virtual void Close(const absl::Status& why) = 0;
};

class PeerReplies {
 public:
  // `peer` names the client for logs. `sink` is used until End.
  PeerReplies(std::shared_ptr<const LocalContext> context, std::string peer, PeerSink* sink);

  // A request is served from now on.
  void Begin();
  // When that was. A reply that is sent later remembers it for NoteEnd.
  MonotonicTime began() const { return began_; }
  // The request that began then has been answered.
  void NoteEnd(Operation operation, absl::StatusCode code, MonotonicTime began, size_t keys = 0);

  // Starts the reply to a request; what follows its head is appended to what is returned.
  local::MessageWriter& Start(local::Kind kind, uint64_t id);
  // Starts a message that is no reply, or one that precedes the reply.
  local::MessageWriter& StartBare(local::Kind kind, uint64_t id);
  // Sends what was started last.
  void Send(std::vector<UniqueFd> descriptors = {});
  void SendError(local::Kind kind, uint64_t id, const absl::Status& status);

  absl::StatusOr<UniqueFd> OpenEvents() { return sink_->OpenEvents(); }
  // Sends an event with this text.
  void SendEvent(local::Kind kind, const std::string& text = "");
  void Close(const absl::Status& why) { sink_->Close(why); }
  // The connection is gone; nothing is sent after that.
  void End() { sink_ = nullptr; }

 private:
  const std::shared_ptr<const LocalContext> context_;
  const std::string peer_;
  PeerSink* sink_;
  local::MessageWriter& reply_;  // of the scratch
  MonotonicTime began_{0};
};

}  // namespace kvkeep
