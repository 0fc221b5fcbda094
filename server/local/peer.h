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
#include <optional>
#include <string>
#include <vector>

#include "proto/local/message.h"
#include "server/local/context.h"
#include "server/local/gpu_get.h"
#include "server/local/keys_call.h"
#include "server/local/message_memory.h"
#include "server/local/peer_jobs.h"
#include "server/local/put_job.h"
#include "server/local/put_line.h"
#include "server/local/session_gpu.h"
#include "server/local/session_leases.h"
#include "server/local/session_memory.h"

namespace kvkeep {

// Memory for serving a request, used again for the next one of any peer; and the puts that wait.
struct PeerScratch {
  PutLine line;
  local::MessageWriter reply{0, 0};
  KeysCall call;
  std::vector<local::Place> places;
  std::vector<local::ImageRun> runs;
};

// Takes a peer's answers. Called from within the peer's methods, on the loop.
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

class LocalPeer : public std::enable_shared_from_this<LocalPeer>, private PutLine::Waiter {
 public:
  struct Identity {
    std::string peer;  // for status and logs
    TenantId tenant;
    Grants grants;
    SegmentRange segments;
    std::vector<SegmentRange> shared = {};    // of tenants whose chunks it may read
    std::shared_ptr<StagingAccount> staging;  // of its tenant; null: no limit of its own
    std::shared_ptr<GpuAccount> gpu;          // likewise
    std::shared_ptr<MessageAccount> messages = nullptr;  // likewise
    GpuOwner gpu_owner;                                  // this connection's
    int process = 0;                     // its number, as the kernel tells; 0: not known
    absl::Status refusal;                // not OK: what its Hello is answered with
    DescriptorCloser::Owner closes = 0;  // whose the descriptors are that it passes
  };
  // `sink` until End.
  LocalPeer(std::shared_ptr<const LocalContext> context, Identity identity, PeerSink* sink);
  ~LocalPeer();

  void OnMessage(local::Message message);
  // Whether OnMessage is welcome: false while too many puts and gets to GPUs are in flight, or some
  // are and its tenant has little memory left for messages.
  bool ready() const;
  // Hello was taken: one descriptor may come with a request for it.
  bool greeted() const { return state_ == State::kOpen || state_ == State::kRevoked; }
  bool open() const { return state_ == State::kOpen; }
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
  enum class State { kNew, kOpen, kRevoked, kEnded };
  using Job = PeerPut;

  // ---- peer.cc
  void Dispatch(local::Message& message);
  absl::Status CheckMayAsk(const local::Message& message) const;
  absl::Status Unknown(uint16_t kind) const;
  // A request that came at `began` has been answered.
  void NoteEnd(Operation operation, absl::StatusCode code, MonotonicTime began, size_t keys = 0);
  void ReplyError(uint16_t kind, uint64_t id, const absl::Status& status);
  void StartReply(local::Kind kind, uint64_t id);
  void SendReply(std::vector<UniqueFd> descriptors = {});
  template <typename T>
  void Reply(local::Kind kind, uint64_t id, const T& body);
  void GiveUpHoldings(bool revoked);

  // ---- peer_session.cc
  void Hello(const local::Message& message);
  absl::Status DoHello(const local::Message& message);
  absl::Status OpenSession(std::string client_name);
  absl::Status SendWelcome(uint64_t id);
  absl::Status SendSegments(const SegmentRange& range);
  uint64_t MostStaging() const;  // of one session
  absl::Status OpenNamespace(const local::Message& message);
  absl::Status ServerInfo(const local::Message& message);

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
  absl::StatusOr<MessageHold> HoldFor(size_t message_bytes) const;
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
  const Identity identity_;
  PeerSink* sink_;
  State state_ = State::kNew;

  uint16_t version_ = 0;  // once Hello was taken
  SessionToken session_;
  std::shared_ptr<ProgressMemory> progress_;
  std::optional<SessionLeases> leases_;
  SessionMemory memory_;
  SessionGpu gpu_;
  struct Namespace {
    uint32_t parts = 0;
    uint64_t bytes_per_part = 0;
  };
  absl::flat_hash_map<NamespaceDigest, Namespace> namespaces_;
  MonotonicTime request_began_{0};  // of the one that is being served
  uint64_t next_job_ = 1;
  absl::flat_hash_map<uint64_t, Job> jobs_;  // replies not sent yet
  size_t copying_ = 0;                       // of jobs_
  std::deque<uint64_t> waiting_;             // jobs with chunks that wait for space, in order
  absl::flat_hash_map<uint64_t, PeerGpuGet> gpu_gets_;  // replies not sent yet
  absl::flat_hash_map<uint64_t, PeerAsking> asking_;    // likewise
  absl::flat_hash_map<uint64_t, PeerDeleting> deleting_;  // likewise
  bool answered_later_ = false;  // the one that is being served
  // The scratch.
  local::MessageWriter& reply_;
  KeysCall& call_;
  std::vector<local::Place>& places_;
  std::vector<local::ImageRun>& runs_;
};

}  // namespace kvkeep
