#include "server/fleet/fleet.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace kvkeep {
namespace {

constexpr std::chrono::seconds kLineEvery{5};       // of one peer
constexpr std::chrono::seconds kRefusalEvery{600};  // likewise
constexpr size_t kMostNamed = 1 << 18;              // chunks of a hand-over

}  // namespace

Fleet::Fleet(const FleetOptions& options, const Parts& parts)
    : parts_(parts),
      certificates_(std::make_shared<ClientCertificates>(parts.identity)),
      callers_(certificates_),
      summaries_(
          {}, NameHash(parts.source->place()),
          [store = parts.store, tenants = options.shared_tenants](TakeName take) {
            store->NameForPeers(tenants, take);
          },
          parts.background, parts.clock),
      service_({.seal = {parts.source->place(), parts.source->mac_key()},
                .limits = {.bytes_per_second = options.serve_bytes_per_second,
                           .pinned_bytes = options.serve_pinned_bytes},
                .shared_tenants = options.shared_tenants},
               {.store = parts.store,
                .state = parts.state,
                .callers = &callers_,
                .source = parts.source,
                .summaries = &summaries_,
                .unreached = [this](const std::string& node) { Greet(node); }}),
      handover_(
          {.bytes_per_second = options.serve_bytes_per_second},
          [store = parts.store, tenants = options.shared_tenants] {
            return store->NameHottest(tenants, kMostNamed);
          },
          parts.executor, parts.clock) {
  TakeMembers();
}

Fleet::~Fleet() { Stop(); }

void Fleet::TakeMembers() {
  std::vector<std::string> names;
  FleetSource::Peers peers;
  Links ended;
  const std::vector<Member> members = parts_.members->all();
  {
    MutexLock lock(&mu_);
    Links before = std::exchange(links_, {});
    for (const Member& member : members) {
      names.push_back(member.name);
      const auto same =
          std::find_if(before.begin(), before.end(), [&](const std::shared_ptr<PeerLink>& link) {
            return link != nullptr && link->name() == member.name &&
                   link->address() == member.address;
          });
      links_.push_back(same != before.end() ? std::move(*same)
                                            : std::make_shared<PeerLink>(
                                                  PeerLinkOptions{.name = member.name,
                                                                  .node = parts_.members->node(),
                                                                  .address = member.address,
                                                                  .fleet = parts_.source->place()},
                                                  PeerLink::Parts{.identity = parts_.identity,
                                                                  .certificates = certificates_,
                                                                  .clock = parts_.clock,
                                                                  .random = parts_.random,
                                                                  .executor = parts_.executor}));
      peers.push_back(links_.back());
    }
    for (std::shared_ptr<PeerLink>& link : before) {
      if (link == nullptr) continue;
      former_.push_back(link);
      ended.push_back(std::move(link));
    }
  }
  summaries_.SetPeers(names.size());
  const bool asks_all = names.size() <= parts_.source->most_peers();
  for (const std::shared_ptr<PeerLink>& link : links()) {
    link->WantSummary(asks_all ? 0 : SummaryMaker::MostBytes(names.size()));
  }
  callers_.SetNames(names);
  parts_.source->SetPeers(std::move(peers));
  for (const std::shared_ptr<PeerLink>& link : ended) link->Stop();
}

bool Fleet::Tick() {
  const std::optional<absl::Status> changed = parts_.members->TakeNews();
  if (changed.has_value() && changed->ok()) {
    TakeMembers();
    parts_.log->Info("the fleet's members were read again",
                     {{"peers", absl::StrCat(links().size())}});
  } else if (changed.has_value()) {
    parts_.log->Error("the fleet's members cannot be read; the previous ones stay",
                      {{"why", std::string(changed->message())}});
  }
  {
    MutexLock lock(&mu_);
    std::erase_if(former_, [](const std::shared_ptr<PeerLink>& link) { return !link->busy(); });
  }
  const Links now_linked = links();
  for (const std::shared_ptr<PeerLink>& link : now_linked) link->Tick();
  TellOfLinks(now_linked);
  handover_.Tick({now_linked.begin(), now_linked.end()});
  TellOfHandOver();
  return !handover_.state().under_way;
}

void Fleet::BeginHandOver(MonotonicTime deadline) {
  // A node that came back a moment ago would else be greeted when the hand-over is over.
  for (const std::shared_ptr<PeerLink>& link : links()) link->GreetSoon();
  handover_.Begin(deadline);
  hands_over_ = true;
}

void Fleet::Greet(const std::string& name) {
  for (const std::shared_ptr<PeerLink>& link : links()) {
    if (link->name() == name) link->GreetSoon();
  }
}

// Logs how a hand-over has ended.
void Fleet::TellOfHandOver() {
  const HandedOver handed = handover_.state();
  if (handed.under_way || !hands_over_.exchange(false)) return;
  parts_.log->Info("chunks were handed to peers",
                   {{"chunks", absl::StrCat(handed.chunks)}, {"left", absl::StrCat(handed.left)}});
}

Fleet::Links Fleet::links() const {
  MutexLock lock(&mu_);
  return links_;
}

// Logs that a link is up, or why it is not; a link that flaps has a line in kLineEvery.
void Fleet::TellOfLinks(const Links& links) {
  const MonotonicTime now = parts_.clock->Now();
  for (const std::shared_ptr<PeerLink>& of : links) {
    const PeerLinkSnapshot link = of->snapshot();
    TellOfRefusals(link);
    Told& told = told_[link.name];
    const bool news = link.up ? !told.up : !link.why.empty() && (told.up || told.why != link.why);
    if (!news || now < told.next_line) continue;
    told.up = link.up;
    told.why = link.why;
    told.next_line = now + kLineEvery;
    if (link.up) {
      parts_.log->Info("a peer answers", {{"peer", link.name}, {"address", link.address}});
    } else {
      parts_.log->Warn("a peer does not answer: its chunks are misses",
                       {{"peer", link.name}, {"address", link.address}, {"why", link.why}});
    }
  }
}

// Two nodes whose lists of shared tenants differ find nothing at each other, and nothing else
// fails.
void Fleet::TellOfRefusals(const PeerLinkSnapshot& link) {
  Told& told = told_[link.name];
  const MonotonicTime now = parts_.clock->Now();
  if (link.refusals == told.refusals || now < told.next_refusal) return;
  told.refusals = link.refusals;
  told.next_refusal = now + kRefusalEvery;
  parts_.log->Warn(
      "a peer refuses calls of this node: are the same tenants shared on both?",
      {{"peer", link.name}, {"why", link.refusal}, {"refusals", absl::StrCat(link.refusals)}});
}

void Fleet::Stop() {
  Links all;
  {
    MutexLock lock(&mu_);
    all = links_;
    all.insert(all.end(), former_.begin(), former_.end());
  }
  handover_.Stop();
  summaries_.Stop();
  TellOfHandOver();
  for (const std::shared_ptr<PeerLink>& link : all) link->Stop();
  for (const std::shared_ptr<PeerLink>& link : all) {
    while (link->busy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for answers
  }
  while (handover_.busy() || summaries_.busy()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // likewise
  }
}

FleetSnapshot Fleet::snapshot() const {
  FleetSnapshot snapshot;
  for (const std::shared_ptr<PeerLink>& link : links()) snapshot.peers.push_back(link->snapshot());
  snapshot.source = parts_.source->counters();
  const ServedToPeers& served = service_.served();
  snapshot.served = {.finds = served.finds,
                     .found_chunks = served.found_chunks,
                     .summaries = served.summaries,
                     .fetches = served.fetches,
                     .fetched_bytes = served.fetched_bytes,
                     .from_g3 = served.from_g3,
                     .busy = served.busy,
                     .absent = served.absent,
                     .refused = served.refused,
                     .offered_chunks = served.offered_chunks,
                     .taken_chunks = served.taken_chunks,
                     .untaken_chunks = served.untaken_chunks};
  const HandoverCounters handed = handover_.counters();
  snapshot.handed = {handed.offers, handed.handed_chunks, handed.handed_bytes,
                     handed.refused_chunks};
  return snapshot;
}

}  // namespace kvkeep
