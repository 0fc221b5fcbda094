// PeerLink: the connection to one other node of the fleet, as a PeerSource over gRPC and mutual
// TLS. The other node is who its certificate says: one that fleet.ca_file signed for its name.
//
// A link is up once the other node has answered Hello, and stays up while it answers the Hello that
// follows each second, or every 15 seconds if nothing else was asked for a minute. The certificate
// must still hold then: it has not expired, and no CRL revokes it. If a call finds the connection
// gone, a Hello is late, or nothing at all comes for `stall` while reads are under way, the link is
// down for all of its work at once: calls under way are cancelled, and so answered, and none begins
// before the next Hello was answered. Hello is tried again after 0.25 s, then after twice as long
// each time, up to 30 s. A read that alone gets nothing for `stall`, as the other node's drive is
// slow, is given up alone.
//
// At most `most_reads` images are read at a time; further reads wait in line. If the other node
// says that it serves as much as it may while reads of ours are under way, a read that
// `waits_if_busy` waits for their end, and fewer are read at a time from then on, until reads
// succeed again.
//
// The owner calls Tick about ten times a second, from one thread; all else is thread-safe. Held by
// shared_ptr: a call keeps its link. Stop, then wait until busy() is false, before the executor
// goes.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvkeep/v1/peer.grpc.pb.h"
#include "server/access/client_certificates.h"
#include "server/access/tls_identity.h"
#include "server/observe/peer_counters.h"
#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/base/random.h"
#include "tiers/remote/offered_chunk.h"
#include "tiers/remote/peer_source.h"

namespace kvkeep {

struct PeerLinkOptions {
  std::string name;     // of the other node
  std::string node;     // this one's name
  std::string address;  // host:port
  Uuid fleet;
  std::chrono::milliseconds hello_every{1'000}, hello_within{3'000};
  // A link rests, with a Hello each `hello_at_rest`, once nothing was asked for `rests_after`.
  std::chrono::milliseconds rests_after{60'000}, hello_at_rest{15'000};
  std::chrono::milliseconds stall{3'000}, read_within{30'000};
  uint32_t most_reads = 8;
  std::chrono::milliseconds summary_every{10'000}, summary_within{10'000};
  std::chrono::milliseconds summary_refused{600'000};  // until a node that has none is asked again
  std::chrono::milliseconds retry_first{250}, retry_last{30'000};
};

class PeerLink final : public PeerSource,
                       public OfferTaker,
                       public std::enable_shared_from_this<PeerLink> {
 public:
  // Borrowed, but for the identity: this node's certificate, and the CA of the nodes' as its
  // `client_ca`; and what checks the certificates of nodes.
  struct Parts {
    std::shared_ptr<const TlsIdentity> identity;
    std::shared_ptr<ClientCertificates> certificates;
    const Clock* clock;
    RandomSource* random;
    Executor* executor;  // runs the answers of calls that cannot begin
  };
  PeerLink(const PeerLinkOptions& options, const Parts& parts);
  ~PeerLink() override;

  void Tick();
  // Has the next Tick greet a node that does not answer, whenever its turn would be.
  void GreetSoon();
  // Asks the other node for its summary each `summary_every`, while the link is up. Summaries of
  // more than twice `most_bytes` are refused. 0: asks for none, and forgets the one it has.
  void WantSummary(size_t most_bytes);
  // Answers all calls under way soon, and begins none any more.
  void Stop();
  bool busy() const;
  PeerLinkSnapshot snapshot() const;

  const std::string& name() const override { return options_.name; }
  const std::string& address() const { return options_.address; }
  bool reachable() const override;
  std::shared_ptr<const ChunkSummary> summary() const override;
  void Find(std::vector<ChunkId> ids, MonotonicTime deadline,
            std::function<void(absl::StatusOr<Found>)> done) override;
  void Read(PeerRead read) override;
  void Offer(std::vector<OfferedChunk> chunks, MonotonicTime deadline,
             std::function<void(absl::StatusOr<OfferAnswer>)> done) override;

 private:
  friend class FetchCall;
  // A call under way. The context lives as long as the call or this map needs it.
  struct Call {
    std::shared_ptr<grpc::ClientContext> context;
    MonotonicTime heard{0};  // when something came last; 0: a stall does not count
    bool given_up = false;
  };
  using CallNumber = uint64_t;

  enum class State { kDown, kUp, kStopped };
  struct Begun {
    CallNumber number;
    std::shared_ptr<grpc::Channel> channel;
    std::shared_ptr<grpc::ClientContext> context;
    MonotonicTime until;
  };
  struct CallKind {
    bool watched = false;  // the call is cancelled if it stalls
    bool is_use = true;    // the link does not rest
  };
  // Returns none if the link is not up.
  std::optional<Begun> BeginCall(MonotonicTime deadline, const CallKind& kind);
  void NoteHeard(CallNumber number);
  void EndCall(CallNumber number);
  struct Waiting {
    PeerRead read;
    MonotonicTime until{0};
  };
  // Notes the end of a read that was asked for by `begun`; a read that was given up is Aborted.
  // Returns true if it waits in line again, as nothing of it was told (`untold`) and the other node
  // was busy with reads of ours.
  bool EndFetch(const Begun& begun, const PeerRead& read, bool untold, absl::Status* status,
                uint64_t bytes);
  // Starts reads that wait, as many as may be under way.
  void StartReads();
  // Answers a read later, as none is answered inside its call.
  void Refuse(RemoteSource::ReadRequest request, const char* why);
  // All that is under way or waits, taken out of the link under the lock, to be ended without it: a
  // call that is cancelled may end inside.
  struct Work {
    std::shared_ptr<grpc::Channel> channel;
    std::vector<std::shared_ptr<grpc::ClientContext>> calls;
    std::deque<Waiting> waiting;
  };
  Work TakeWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(Work work, const char* why);
  void Greet();
  // Asks for the summary if its turn has come.
  void AskSummary();
  void OnSummary(const absl::Status& status, v1::SummaryResponse response);
  void OnHello(const std::shared_ptr<grpc::Channel>& channel, CallNumber number,
               const absl::Status& status, const v1::PeerHelloResponse& response);
  // Notes that the link was used, so that it does not rest.
  void WakeUp(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes how a call on this channel ended.
  void NoteOutcome(const std::shared_ptr<grpc::Channel>& channel, const absl::Status& status);
  void GoDown(const std::shared_ptr<grpc::Channel>& channel, std::string why);
  std::shared_ptr<grpc::Channel> MakeChannel() const;
  void Count(uint64_t PeerLinkSnapshot::*counter);

  const PeerLinkOptions options_;
  const Parts parts_;

  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kDown;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mu_);  // greeted, or up; null: neither
  std::map<CallNumber, Call> calls_ ABSL_GUARDED_BY(mu_);
  CallNumber last_call_ ABSL_GUARDED_BY(mu_) = 0;
  bool greets_ ABSL_GUARDED_BY(mu_) = false;  // a Hello is under way
  MonotonicTime next_hello_ ABSL_GUARDED_BY(mu_){0};
  MonotonicTime used_ ABSL_GUARDED_BY(mu_);  // when a call began last; at first, when it was made
  MonotonicTime heard_ ABSL_GUARDED_BY(mu_){0};  // when the other node said something last
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  uint32_t reading_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t may_read_ ABSL_GUARDED_BY(mu_);  // at a time, by the other node's last answers
  std::chrono::milliseconds retry_after_ ABSL_GUARDED_BY(mu_);
  // What the other node says that it has.
  struct Summary {
    void Forget() {
      newest = nullptr;
      version = 0;
      next = MonotonicTime(0);
    }
    size_t most_bytes = 0;  // 0: it is not asked for
    bool asking = false;
    MonotonicTime next{0};
    uint64_t version = 0;
    std::shared_ptr<const ChunkSummary> newest;
  };
  Summary summary_ ABSL_GUARDED_BY(mu_);
  PeerLinkSnapshot told_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
