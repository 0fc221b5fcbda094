#include "tiers/remote/fleet_source.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/tenant_tag.h"
#include "tiers/remote/missing_chunks.h"

namespace kvkeep {

namespace {

// What the summaries of peers are asked about: the first chunks of a question and, where the end of
// the run is wanted, too, its last ones.
class Asked {
 public:
  Asked(const NameHash& hash, std::span<const ChunkId> ids, RemoteSource::Wanted wanted) {
    constexpr size_t kFirst = 256, kLast = 64;
    for (const ChunkId& id : ids.first(std::min(kFirst, ids.size()))) first_.push_back(hash(id));
    if (wanted != RemoteSource::Wanted::kAny) return;
    for (const ChunkId& id : ids.last(std::min(kLast, ids.size()))) last_.push_back(hash(id));
  }

  // Returns how well the peer suits, by its summary: 1 if it seems to lack the chunks, 2 if its
  // summary says nothing of them, or more, the more of them in a row it seems to have.
  size_t RankOf(const ChunkSummary* summary) const {
    if (summary == nullptr) return kUnknown;
    const ChunkSummary::Answer first = summary->LookFromFront(first_);
    const ChunkSummary::Answer last = summary->LookFromBack(last_);
    if (first.sampled == 0 && last.sampled == 0) return kUnknown;
    const size_t reach = std::max(first.reach, last.reach);
    return reach == 0 ? kLacking : kUnknown + reach;
  }
  static constexpr size_t kLacking = 1, kUnknown = 2;

 private:
  std::vector<uint64_t> first_, last_;
};

}  // namespace

struct FleetSource::Finding {
  std::vector<ChunkId> ids;
  Wanted wanted;
  MonotonicTime deadline;
  std::function<void(Found)> done;

  // Constant once peers are asked: whether a chunk may be taken from peers.
  std::vector<bool> trusted;

  Mutex mu;
  size_t left ABSL_GUARDED_BY(mu) = 0;  // peers that have not answered
  bool over ABSL_GUARDED_BY(mu) = false;
  // Below: written under the lock until it is over, and by one thread afterwards.
  Found found;
  std::vector<std::vector<Holder>> holders;  // by chunk

  // Returns whether each chunk is in a peer's DRAM, where no other answer could be better.
  bool complete() const {
    return std::all_of(holders.begin(), holders.end(), [](const std::vector<Holder>& of_chunk) {
      return std::any_of(of_chunk.begin(), of_chunk.end(),
                         [](const Holder& one) { return one.tier == Tier::kG2; });
    });
  }
};

struct FleetSource::Reading {
  Reading(ReadRequest of_request, std::vector<Holder> holders)
      : request(std::move(of_request)), left(std::move(holders)) {}

  ReadRequest request;
  std::vector<Holder> left;  // peers to ask, the best one last
  absl::Status failed;       // why the last one did not serve; OK: none was asked

  uint64_t body_bytes() const {
    return request.shape.blocks().value() * kBlockBytes - kHeaderBytes;
  }
};

FleetSource::FleetSource(const FleetSourceOptions& options, const Uuid& place,
                         const MacKey& mac_key, const Parts& parts)
    : options_(options),
      place_(place),
      mac_key_(mac_key),
      hash_(place),
      shared_(parts.shared),
      executor_(*parts.executor),
      clock_(*parts.clock),
      random_(*parts.random),
      known_(options.remembered_chunks, options.remember_for, random_.NextU64()),
      distrusted_(options.distrusted_chunks, options.distrust_for, random_.NextU64()) {
  KVKEEP_CHECK(shared_ == nullptr || (shared_->place() == place && shared_->mac_key() == mac_key));
  KVKEEP_CHECK(options.most_peers > 0 && options.remembered_chunks > 0 &&
               options.distrusted_chunks > 0);
}

FleetSource::~FleetSource() = default;

void FleetSource::SetPeers(Peers peers) {
  std::vector<MemberPtr> members;
  for (std::shared_ptr<PeerSource>& peer : peers) {
    KVKEEP_CHECK(peer != nullptr);
    members.push_back(std::make_shared<Member>());
    members.back()->peer = std::move(peer);
  }
  MutexLock lock(&mu_);
  members_.swap(members);
}

absl::Status FleetSource::NoteHolder(const std::string& peer,
                                     const std::vector<OfferedChunk>& chunks) {
  MemberPtr holder;
  {
    MutexLock lock(&mu_);
    for (const MemberPtr& one : members_) {
      if (one->peer->name() == peer) holder = one;
    }
  }
  if (holder == nullptr) return absl::NotFoundError("this node has no such peer");
  if (!holder->peer->reachable()) {
    return absl::UnavailableError("this node does not reach the peer");
  }
  const MonotonicTime now = clock_.Now();
  MutexLock lock(&mu_);
  for (const OfferedChunk& chunk : chunks) {
    Known* const known = known_.Find(chunk.id, now);
    if (known == nullptr) {
      known_.Put(chunk.id, {chunk.shape, {{holder, Tier::kG2}}}, now);
    } else if (known->shape == chunk.shape) {
      AddHolder(*known, holder, Tier::kG2);
    }
  }
  return absl::OkStatus();
}

FleetSourceCounters FleetSource::counters() const {
  MutexLock lock(&mu_);
  return counters_;
}

void FleetSource::Count(uint64_t FleetSourceCounters::*counter, uint64_t by) {
  MutexLock lock(&mu_);
  counters_.*counter += by;
}

// ---- what is known of the sources

std::vector<FleetSource::MemberPtr> FleetSource::PeersToAsk(std::span<const ChunkId> ids,
                                                            Wanted wanted) {
  if (!shares(ids.front().ns)) return {};
  std::vector<MemberPtr> members;
  {
    MutexLock lock(&mu_);
    members = members_;
  }
  std::erase_if(members, [](const MemberPtr& one) { return !one->peer->reachable(); });
  if (members.size() <= options_.most_peers) return members;
  struct Choice {
    size_t rank;
    uint64_t turn;  // drawn
    MemberPtr member;
  };
  const Asked asked(hash_, ids, wanted);
  std::vector<Choice> choices;
  for (MemberPtr& member : members) {
    const std::shared_ptr<const ChunkSummary> summary = member->peer->summary();
    choices.push_back({asked.RankOf(summary.get()), random_.NextU64(), std::move(member)});
  }
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return std::pair(b.rank, b.turn) < std::pair(a.rank, a.turn);
  });
  const auto left_out = choices.begin() + static_cast<ptrdiff_t>(options_.most_peers);
  const auto spared = std::count_if(left_out, choices.end(),
                                    [](const Choice& one) { return one.rank == Asked::kLacking; });
  Count(&FleetSourceCounters::spared_questions, static_cast<uint64_t>(spared));
  members.clear();
  for (auto one = choices.begin(); one != left_out; ++one) members.push_back(one->member);
  return members;
}

bool FleetSource::reaches_any() const {
  MutexLock lock(&mu_);
  return std::any_of(members_.begin(), members_.end(),
                     [](const MemberPtr& one) { return one->peer->reachable(); });
}

bool FleetSource::shares(const NamespaceDigest& ns) const {
  const auto& shared = options_.shared_tenants;
  return !shared.has_value() || shared->contains(TenantTagOf(ns));
}

bool FleetSource::readable() const {
  return (shared_ != nullptr && shared_->readable()) || reaches_any();
}

bool FleetSource::writable() const { return shared_ != nullptr && shared_->writable(); }

bool FleetSource::may_find(const NamespaceDigest& ns) const {
  return (shared_ != nullptr && shared_->may_find(ns)) || (shares(ns) && reaches_any());
}

bool FleetSource::may_ask_age() const { return shared_ != nullptr && shared_->may_ask_age(); }

bool FleetSource::TakeQuestion(const NamespaceDigest& ns) {
  return shared_ != nullptr && shared_->TakeQuestion(ns);
}

void FleetSource::NoteBad(const ChunkId& id) {
  MutexLock lock(&mu_);
  ++counters_.distrusted;
  distrusted_.Put(id, {}, clock_.Now());
}

uint64_t FleetSource::epoch() const { return shared_ == nullptr ? 0 : shared_->epoch(); }

// ---- find

void FleetSource::Find(std::vector<ChunkId> ids, Wanted wanted, MonotonicTime deadline,
                       std::function<void(Found)> done) {
  KVKEEP_CHECK(!ids.empty());
  const std::vector<MemberPtr> asked = PeersToAsk(ids, wanted);
  const auto finding = std::make_shared<Finding>();
  finding->found.resize(ids.size());
  finding->holders.resize(ids.size());
  finding->ids = std::move(ids);
  finding->wanted = wanted;
  finding->deadline = deadline;
  finding->done = std::move(done);
  if (asked.empty()) return AskShared(finding, true);
  {
    MutexLock lock(&finding->mu);
    finding->left = asked.size();
  }
  const MonotonicTime now = clock_.Now();
  {
    MutexLock lock(&mu_);
    ++counters_.searches;
    counters_.questions += asked.size();
    for (const ChunkId& id : finding->ids) {
      finding->trusted.push_back(distrusted_.Find(id, now) == nullptr);
    }
  }
  const MonotonicTime until = std::min(deadline, now + options_.ask_peers_within);
  for (const MemberPtr& member : asked) {
    member->peer->Find(finding->ids, until,
                       [this, finding, member](const absl::StatusOr<PeerSource::Found>& answer) {
                         OnAnswer(finding, member, answer);
                       });
  }
}

void FleetSource::OnAnswer(const std::shared_ptr<Finding>& finding, const MemberPtr& member,
                           const absl::StatusOr<PeerSource::Found>& answer) {
  const bool usable = answer.ok() && answer->size() == finding->ids.size();
  if (!usable) {
    Count(absl::IsDeadlineExceeded(answer.status()) ? &FleetSourceCounters::late_questions
                                                    : &FleetSourceCounters::failed_questions);
  }
  bool late = false;
  {
    MutexLock lock(&finding->mu);
    late = finding->over;
    for (size_t i = 0; usable && !late && i < answer->size(); ++i) {
      const std::optional<PeerChunk>& chunk = (*answer)[i];
      if (!chunk.has_value() || !finding->trusted[i] || !ValidateShape(chunk->shape).ok()) continue;
      // Two peers that have unlike images of one name: the first one that answered counts.
      std::optional<ImageShape>& found = finding->found[i];
      if (found.has_value() && *found != chunk->shape) continue;
      found = chunk->shape;
      finding->holders[i].push_back({member, chunk->tier});
    }
    KVKEEP_CHECK(finding->left > 0);
    --finding->left;
    if (!late) {
      if (finding->left > 0 && !finding->complete()) return;
      finding->over = true;
    }
  }
  if (late) {
    if (usable) OnLateAnswer(*finding, member, *answer);
    return;
  }
  Remember(*finding);
  AskShared(finding, false);
}

void FleetSource::Remember(const Finding& finding) {
  const MonotonicTime now = clock_.Now();
  MutexLock lock(&mu_);
  for (size_t i = 0; i < finding.ids.size(); ++i) {
    if (finding.holders[i].empty()) continue;
    ++counters_.found_chunks;
    known_.Put(finding.ids[i], {*finding.found[i], finding.holders[i]}, now);
  }
}

void FleetSource::OnLateAnswer(const Finding& finding, const MemberPtr& member,
                               const PeerSource::Found& answer) {
  const MonotonicTime now = clock_.Now();
  MutexLock lock(&mu_);
  for (size_t i = 0; i < answer.size(); ++i) {
    if (!answer[i].has_value()) continue;
    Known* const known = known_.Find(finding.ids[i], now);
    if (known == nullptr || known->shape != answer[i]->shape) continue;
    AddHolder(*known, member, answer[i]->tier);
  }
}

void FleetSource::AddHolder(Known& known, const MemberPtr& member, Tier tier) {
  const bool there = std::any_of(known.holders.begin(), known.holders.end(),
                                 [&](const Holder& one) { return one.member == member; });
  if (!there) known.holders.push_back({member, tier});
}

// Looks in G4 for the chunks that no peer has.
void FleetSource::AskShared(const std::shared_ptr<Finding>& finding, bool in_find) {
  MissingChunks missing = MissingChunks::Of(finding->ids, finding->found);
  const bool ask =
      !missing.ids.empty() && reads_shared() && shared_->may_find(finding->ids.front().ns);
  if (!ask && !in_find) return finding->done(std::move(finding->found));
  if (!ask) {
    executor_.Post([finding] { finding->done(std::move(finding->found)); });
    return;
  }
  shared_->Find(std::move(missing.ids), finding->wanted, finding->deadline,
                [finding, at = std::move(missing.at)](const Found& found) {
                  KVKEEP_CHECK(found.size() == at.size());
                  for (size_t i = 0; i < found.size(); ++i) finding->found[at[i]] = found[i];
                  finding->done(std::move(finding->found));
                });
}

// ---- read

std::vector<FleetSource::Holder> FleetSource::TakeHolders(const ChunkId& id) {
  std::vector<Holder> holders;
  bool distrusted = false;
  {
    const MonotonicTime now = clock_.Now();
    MutexLock lock(&mu_);
    std::optional<Known> known = known_.Take(id, now);
    distrusted = distrusted_.Find(id, now) != nullptr;
    if (known.has_value() && !distrusted) holders = std::move(known->holders);
  }
  // Without G4 a peer may have it all the same.
  if (holders.empty() && shared_ == nullptr && !distrusted) {
    for (MemberPtr& member : PeersToAsk(std::span(&id, 1), Wanted::kAny)) {
      holders.push_back({std::move(member), Tier::kG2});
    }
  }
  std::erase_if(holders, [](const Holder& one) { return !one.member->peer->reachable(); });
  std::stable_sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) {
    const auto cost = [](const Holder& one) {
      return std::pair(one.tier != Tier::kG2, one.member->reading.load());
    };
    return cost(a) > cost(b);
  });
  return holders;
}

void FleetSource::Read(ReadRequest request) {
  KVKEEP_CHECK(ValidateShape(request.shape).ok());
  std::vector<Holder> holders = TakeHolders(request.id);
  ReadNext(std::make_shared<Reading>(std::move(request), std::move(holders)));
}

void FleetSource::ReadNext(const std::shared_ptr<Reading>& reading) {
  if (!reading->left.empty()) {
    const MemberPtr member = std::move(reading->left.back().member);
    reading->left.pop_back();
    return ReadFrom(reading, member);
  }
  if (shared_ != nullptr) {
    if (!reading->failed.ok()) Count(&FleetSourceCounters::read_elsewhere);
    return shared_->Read(std::move(reading->request));
  }
  // Later, as nobody may have been asked.
  executor_.Post([reading] {
    reading->request.Fail(absl::UnavailableError(absl::StrCat(
        "no node of the fleet serves the chunk: ", reading->failed.ok()
                                                       ? "none is known to have it and is reachable"
                                                       : reading->failed.message())));
  });
}

void FleetSource::ReadFrom(const std::shared_ptr<Reading>& reading, const MemberPtr& member) {
  Count(&FleetSourceCounters::reads);
  ++member->reading;
  struct Attempt {
    std::atomic<bool> told{false};  // the header page is good, and was told
    std::atomic<bool> cut{false};
    std::atomic<uint64_t> left;  // bytes that are not reported
  };
  const auto attempt = std::make_shared<Attempt>();
  attempt->left = reading->body_bytes();
  const ReadRequest& request = reading->request;
  ReadRequest of_peer{
      .id = request.id, .shape = request.shape, .header = request.header, .memory = request.memory};
  of_peer.deadline = request.deadline;
  of_peer.header_done = [this, reading, attempt](absl::Status status) {
    if (!status.ok()) return OnPeerFailed(*reading, std::move(status));
    attempt->told = true;
    reading->request.header_done(absl::OkStatus());
  };
  of_peer.piece_done = [this, reading, attempt, member](size_t piece, uint64_t bytes,
                                                        absl::Status status) {
    const bool told = attempt->told;
    if (told) {
      if (status.ok()) Count(&FleetSourceCounters::read_bytes, bytes);
      if (!status.ok() && !attempt->cut.exchange(true)) Count(&FleetSourceCounters::cut_reads);
      reading->request.piece_done(piece, bytes, std::move(status));
    }
    const uint64_t left = attempt->left -= bytes;
    KVKEEP_CHECK(left <= reading->body_bytes());
    if (left > 0) return;
    --member->reading;
    // Not before: until here the peer's answer may write to the memory.
    if (!told) ReadNext(reading);
  };
  member->peer->Read({.request = std::move(of_peer),
                      .check_header =
                          [this, reading] {
                            absl::Status status = CheckHeader(reading->request);
                            if (!status.ok()) Count(&FleetSourceCounters::bad_headers);
                            return status;
                          },
                      .waits_if_busy = reading->left.empty() && !reads_shared()});
}

void FleetSource::OnPeerFailed(Reading& reading, absl::Status why) {
  Count(absl::IsResourceExhausted(why) ? &FleetSourceCounters::busy_reads
        : absl::IsNotFound(why)        ? &FleetSourceCounters::absent_reads
                                       : &FleetSourceCounters::failed_reads);
  // Without G4 there is nobody else to take a chunk from that has left a peer meanwhile.
  const bool left = absl::IsNotFound(why) && shared_ != nullptr;
  if (left || absl::IsDataLoss(why)) NoteBad(reading.request.id);
  reading.failed = std::move(why);
}

absl::Status FleetSource::CheckHeader(const ReadRequest& request) const {
  KVKEEP_ASSIGN_OR_RETURN(const ImageHeader header, DecodeHeader(request.header, mac_key_));
  const bool of_it = header.identity.id == request.id || Planted(Canary::kPeerBelieved);
  if (!of_it || header.placement.tier != Tier::kG2 || header.placement.place != place_ ||
      header.encryption.has_value()) {
    return absl::DataLossError("the image of a peer is of another chunk, place or form");
  }
  if (header.identity.shape != request.shape) {
    return absl::DataLossError("the image of a peer is another one than was found");
  }
  return absl::OkStatus();
}

// ---- what G4 does alone

void FleetSource::Age(const ChunkId& id,
                      std::function<void(absl::StatusOr<std::chrono::seconds>)> done) {
  if (shared_ != nullptr) return shared_->Age(id, std::move(done));
  executor_.Post(
      [done = std::move(done)] { done(absl::UnavailableError("this fleet shares no storage")); });
}

void FleetSource::Write(WriteRequest request) {
  if (shared_ != nullptr) return shared_->Write(std::move(request));
  executor_.Post([done = std::move(request.done)] {
    done(absl::UnavailableError("this fleet shares no storage"));
  });
}

void FleetSource::Remove(const ChunkId& id, std::function<void(absl::Status)> done) {
  if (shared_ != nullptr) return shared_->Remove(id, std::move(done));
  executor_.Post(
      [done = std::move(done)] { done(absl::UnavailableError("this fleet shares no storage")); });
}

}  // namespace kvkeep
