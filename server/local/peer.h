// LocalPeer: the daemon's side of one connection of the local path, without its socket: takes whole
// messages, answers through a PeerSink. It decides which requests are allowed in which state, hands
// each to the object that serves it, and ends all of them. Everything that the session holds ends
// with it.
//
// PeerSession: the session's states, Hello, namespaces, leases. PeerKeys: requests about keys.
// PeerMemory: memory that puts are read from. PeerPuts: puts under way. PeerGpu: memory of GPUs,
// and gets to it. PeerReplies: the messages of all of them to the client.
//
// One thread, the loop; the results of other threads' work (copies, stable storage) come back
// there.
#pragma once

#include <absl/status/status.h>

#include <memory>
#include <string>

#include "proto/local/message.h"
#include "server/local/context.h"
#include "server/local/peer_gpu.h"
#include "server/local/peer_keys.h"
#include "server/local/peer_memory.h"
#include "server/local/peer_puts.h"
#include "server/local/peer_replies.h"
#include "server/local/peer_scratch.h"
#include "server/local/peer_session.h"

namespace kvkeep {

class LocalPeer {
 public:
  using Identity = PeerIdentity;
  // `sink` until End.
  LocalPeer(std::shared_ptr<const LocalContext> context, Identity identity, PeerSink* sink);
  ~LocalPeer();
  LocalPeer(const LocalPeer&) = delete;
  LocalPeer& operator=(const LocalPeer&) = delete;

  void OnMessage(local::Message message);
  // Returns whether OnMessage may be called: false while too many puts and gets to GPUs are in
  // flight, or some are and its tenant has little memory left for messages.
  bool ready() const;
  // Returns whether Hello was taken: from then on one descriptor may come with a request for it.
  bool greeted() const { return session_->open() || session_->revoked(); }
  bool open() const { return session_->open(); }
  // Returns whether the client has leases, puts or gets to GPUs: others wait for these if it stops.
  bool holds_something() const;

  // Gives back all that the client holds, because it stopped, and tells it `why`.
  void Revoke(const std::string& why);
  void NotifyDraining();
  // Call when more of a put in parts is there. Returns false if this client has no such puts.
  bool OnPutFilled();
  // Call now and then. Gives up puts in parts that got no piece for LocalLimits::grace.
  void OnTick(MonotonicTime now) { puts_->OnTick(now); }
  // Call when the connection is gone. Idempotent.
  void End();

 private:
  void Hello(const local::Message& message);
  absl::Status CheckMayAsk(const local::Message& message) const;
  absl::Status Unknown(uint16_t kind) const;
  void Dispatch(local::Message& message);
  // Begins to serve a request, which `counter` counts.
  void Begin(LocalCounters::Counter* counter);
  // Answers the request being served with an error.
  void Fail(const local::Message& message, Operation operation, const absl::Status& status,
            size_t keys = 0);
  // Serves a request of the session by a method of one of the objects.
  template <typename Object, typename Method>
  void ServeSession(local::Message& message, Object& object, Method method);
  void ServeKeys(const local::Message& message, LocalCounters::Counter* counter,
                 Operation operation);
  void ServePut(const local::Message& message, LocalCounters::Counter* counter);
  void ServeGpuGet(const local::Message& message);
  void CancelWork();

  const std::shared_ptr<const LocalContext> context_;
  // Shared: callbacks find the objects below by weak pointers, and hold them while they run.
  const std::shared_ptr<PeerReplies> replies_;
  const std::shared_ptr<PeerSession> session_;
  const std::shared_ptr<PeerKeys> keys_;
  const std::shared_ptr<PeerMemory> memory_;
  const std::shared_ptr<PeerGpu> gpu_;
  const std::shared_ptr<PeerPuts> puts_;
};

}  // namespace kvkeep
