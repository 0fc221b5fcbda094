// LocalPeer: the daemon's side of one connection of the local path, without its socket: takes whole
// messages, answers through a PeerSink. All that the session holds ends with the peer.
//
// One thread, the loop; what others do for it (copies, stable storage) comes back there.
//
//   New --Hello--> Open --Revoke--> Revoked      every state --End--> Ended
//    \--Hello refused--> Ended                   Revoked: requests answer FAILED_PRECONDITION
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/status/status.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "proto/local/message.h"
#include "server/local/context.h"
#include "server/local/gpu_get.h"
#include "server/local/peer_jobs.h"
#include "server/local/peer_replies.h"
#include "server/local/peer_scratch.h"
#include "server/local/peer_session.h"
#include "server/local/put_job.h"
#include "server/local/session_gpu.h"
#include "server/local/session_memory.h"

namespace kvkeep {

class LocalPeer : public std::enable_shared_from_this<LocalPeer>, private PutLine::Waiter {
 public:
  using Identity = PeerIdentity;
  // `sink` until End.
  LocalPeer(std::shared_ptr<const LocalContext> context, Identity identity, PeerSink* sink);
  ~LocalPeer();

  void OnMessage(local::Message message);
  // Whether OnMessage is welcome: false while too many puts and gets to GPUs are in flight, or some
  // are and its tenant has little memory left for messages.
  bool ready() const;
  // Hello was taken: one descriptor may come with a request for it.
  bool greeted() const { return session_->open() || session_->revoked(); }
  bool open() const { return session_->open(); }
  // Leases, puts, gets to GPUs: what others wait for when the client stops.
  bool holds_something() const;

  // The client stopped: gives back all that it holds, and tells it `why`.
  void Revoke(const std::string& why);
  void NotifyDraining();
  // More of a put in parts is there. False: this client has no such puts.
  bool OnPutFilled();
  // Call now and then. Gives up puts in parts of which no piece came for LocalLimits::grace.
  void OnTick(MonotonicTime now);
  // The connection is gone. Idempotent.
  void End();

 private:
  using Job = PeerPut;

  // ---- peer.cc
  void Dispatch(local::Message& message);
  absl::Status CheckMayAsk(const local::Message& message) const;
  absl::Status Unknown(uint16_t kind) const;
  void Hello(const local::Message& message);
  void CancelWork();

  // ---- peer_keys.cc
  absl::Status Keys(const local::Message& message);
  absl::Status Delete(uint64_t id);
  void OnDeleted(uint64_t number, const absl::Status& status);
  absl::Status ResolveParts();
  void DoReleases();
  absl::Status ReplyLookup(local::Kind kind, uint64_t id, const LookupResult& found, bool searched);
  absl::Status AddPlaces(const LookupResult& found);
  void UndoLease(const LookupResult& found, bool known);

  // ---- peer_beyond.cc
  absl::Status LookupBeyond(const local::Message& message);
  void OnSearched(uint64_t number);

  // ---- peer_memory.cc
  absl::Status Staging(const local::Message& message);
  StagingWish WishFor(uint64_t asked) const;
  void OnStagingMade(uint64_t id, absl::StatusOr<std::shared_ptr<StagingMemory>> made);
  absl::Status Register(local::Message& message);
  absl::Status Unregister(const local::Message& message);
  absl::Status Put(const local::Message& message);
  PutJob::Callbacks PutCallbacks(uint64_t number, uint64_t id, SaysCopied tells);
  void TellCopied(uint64_t id);
  // Starts the waiting puts that fit, in their order.
  void AdvancePuts();
  void AwaitSpace(Job& job);
  bool WaitedLong(const Job& job) const;
  bool TryAgain() override;
  void OnRoundOver(uint64_t number);
  void OnPutDone(uint64_t number, const PutJob& put);

  // ---- peer_gpu.cc
  absl::Status RegisterGpu(local::Message& message);
  void OnGpuRegistered(uint64_t id, uint32_t number, const absl::Status& status,
                       GpuRegionPtr region);
  absl::Status UnregisterGpu(const local::Message& message);
  absl::Status GetToGpu(const local::Message& message);
  void OnGpuGetDone(uint64_t number);

  const std::shared_ptr<const LocalContext> context_;
  const std::shared_ptr<PeerReplies> replies_;
  const std::shared_ptr<PeerSession> session_;
  SessionMemory memory_;
  SessionGpu gpu_;
  uint64_t next_job_ = 1;
  absl::flat_hash_map<uint64_t, Job> jobs_;  // replies not sent yet
  size_t copying_ = 0;                       // of jobs_
  std::deque<uint64_t> waiting_;             // jobs with chunks that wait for space, in order
  absl::flat_hash_map<uint64_t, PeerGpuGet> gpu_gets_;  // replies not sent yet
  absl::flat_hash_map<uint64_t, PeerAsking> asking_;    // likewise
  absl::flat_hash_map<uint64_t, PeerDeleting> deleting_;  // likewise
  bool answered_later_ = false;  // the one that is being served
  // The scratch.
  KeysCall& call_;
  std::vector<local::Place>& places_;
  std::vector<local::ImageRun>& runs_;
};

}  // namespace kvkeep
