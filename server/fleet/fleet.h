// Fleet: this node among the others: the members, a link to each, and the service that answers
// them. Gives the links to the store's FleetSource, and the members' names to PeerCallers.
//
// The owner calls Tick about ten times a second, from one thread; all else is thread-safe.
#pragma once

#include <absl/container/flat_hash_set.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/access/peer_callers.h"
#include "server/access/tls_identity.h"
#include "server/fleet/handover.h"
#include "server/fleet/members.h"
#include "server/fleet/peer_link.h"
#include "server/fleet/peer_service.h"
#include "server/fleet/summary_maker.h"
#include "server/observe/log.h"
#include "server/observe/peer_counters.h"
#include "tiers/remote/fleet_source.h"

namespace kvkeep {

struct FleetOptions {
  uint64_t serve_bytes_per_second = 0;           // 0: nothing is served
  uint64_t serve_pinned_bytes = 0;               // of G2, at once
  absl::flat_hash_set<uint32_t> shared_tenants;  // by TenantTagOf
};

class Fleet final : public HandOver {
 public:
  // Borrowed, but for the members and the identity: this node's certificate with fleet.ca_file as
  // its `client_ca`.
  struct Parts {
    std::shared_ptr<Members> members;
    std::shared_ptr<TlsIdentity> identity;
    FleetSource* source;
    Store* store;
    ServerState* state;
    Executor* executor;
    Executor* background;  // for work that nobody waits for
    const Log* log;
    const Clock* clock;
    RandomSource* random;
  };
  Fleet(const FleetOptions& options, const Parts& parts);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  grpc::Service* service() { return &service_; }
  // Returns true if nothing is under way that needs the next call soon.
  bool Tick();
  void StayOpen() override { service_.AnswerInDrain(); }
  void BeginHandOver(MonotonicTime deadline) override;
  HandedOver handed_over() const override { return handover_.state(); }
  // Ends all calls to other nodes, and waits until they are answered. Idempotent.
  void Stop();
  FleetSnapshot snapshot() const;

 private:
  // Makes links to new members, and ends those to former ones: what is read from these fails.
  void TakeMembers();
  using Links = std::vector<std::shared_ptr<PeerLink>>;
  Links links() const;
  void TellOfLinks(const Links& links);
  void TellOfRefusals(const PeerLinkSnapshot& link);
  void TellOfHandOver();
  // Greets the node soon if it does not answer.
  void Greet(const std::string& name);

  const Parts parts_;
  const std::shared_ptr<ClientCertificates> certificates_;  // of other nodes
  PeerCallers callers_;
  SummaryMaker summaries_;
  PeerService service_;
  Handover handover_;
  std::atomic<bool> hands_over_{false};  // it was begun, and its end was not logged
  mutable Mutex mu_;
  Links links_ ABSL_GUARDED_BY(mu_);   // by name
  Links former_ ABSL_GUARDED_BY(mu_);  // calls may be under way
  // What was logged last of a link.
  struct Told {
    bool up = false;
    std::string why;
    MonotonicTime next_line{0};  // not before
    uint64_t refusals = 0;
    MonotonicTime next_refusal{0};
  };
  std::map<std::string, Told> told_;  // of Tick, by name
};

}  // namespace kvkeep
