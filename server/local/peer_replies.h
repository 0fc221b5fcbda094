// PeerReplies: builds one peer's messages to its client, in memory that all peers share, hands them
// to a PeerSink, and notes how long requests took. One thread, the loop's.
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
  // Sends a whole message, with the descriptors of its first packet. `message` is valid during this
  // call.
  virtual void Send(std::span<const std::byte> message, std::vector<UniqueFd> descriptors) = 0;
  // Returns the client's end of a new event socket.
  virtual absl::StatusOr<UniqueFd> OpenEvents() = 0;
  virtual void SendEvent(std::span<const std::byte> message) = 0;
  // Closes the connection after the sent messages. LocalPeer::End tells the peer.
  virtual void Close(const absl::Status& why) = 0;
};

class PeerReplies {
 public:
  // `peer` names the client for logs. `sink` is used until End.
  PeerReplies(std::shared_ptr<const LocalContext> context, std::string peer, PeerSink* sink);

  // Begins the time of a request.
  void Begin();
  // Returns when the request began. A reply that is sent later keeps it for NoteEnd.
  MonotonicTime began() const { return began_; }
  // Notes that the request that began at `began` has been answered.
  void NoteEnd(Operation operation, absl::StatusCode code, MonotonicTime began, size_t keys = 0);

  // Starts the reply to a request. The caller appends what follows its head to the result.
  local::MessageWriter& Start(local::Kind kind, uint64_t id);
  // Starts a message that is not a reply, or one that precedes the reply.
  local::MessageWriter& StartBare(local::Kind kind, uint64_t id);
  // Sends the message that was started last.
  void Send(std::vector<UniqueFd> descriptors = {});
  void SendError(local::Kind kind, uint64_t id, const absl::Status& status);

  absl::StatusOr<UniqueFd> OpenEvents() { return sink_->OpenEvents(); }
  // Sends an event with this text.
  void SendEvent(local::Kind kind, const std::string& text = "");
  void Close(const absl::Status& why) { sink_->Close(why); }
  // Call when the connection is gone: nothing is sent after that.
  void End() { sink_ = nullptr; }

 private:
  const std::shared_ptr<const LocalContext> context_;
  const std::string peer_;
  PeerSink* sink_;
  local::MessageWriter& reply_;  // of the scratch
  MonotonicTime began_{0};
};

}  // namespace kvkeep
