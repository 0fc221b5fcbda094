// The calls of LocalTransport that exchange one message each: lookup, acquire, touch, prefetch,
// delete, release and server info.
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "client/local/local_lease.h"
#include "client/local/local_transport.h"
#include "client/local/test_point.h"
#include "client/transport/check_call.h"
#include "client/transport/split_lease.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/wire_time.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using Reply = LocalSession::Reply;

std::string StateName(uint32_t state) {  // kvkeep.v1.ServingState
  switch (state) {
    case 1:
      return "recovering";
    case 2:
      return "serving";
    case 3:
      return "draining";
    default:
      return "unknown";
  }
}

absl::StatusOr<local::ServerInfoReply> ReadInfo(Reply& reply, std::string* version) {
  local::ServerInfoReply said;
  std::span<const std::byte> text;
  if (!reply.body.Read(&said) || !reply.body.ReadBytes(said.version_bytes, &text) ||
      !reply.body.done()) {
    return absl::InternalError("local: ServerInfo of a wrong length");
  }
  version->assign(reinterpret_cast<const char*>(text.data()), text.size());
  return said;
}

uint64_t Convert(const local::CountReply& said, uint64_t*) { return said.chunks; }
PrefetchResult Convert(const local::PrefetchReply& said, PrefetchResult*) {
  return {.started_chunks = said.started_chunks, .ready_chunks = said.ready_chunks};
}

// Returns the chunks that an acquire in slices has leased, one layout after the other.
absl::StatusOr<Acquired> LaidOpen(const LocalSessionPtr& session, LookupResult found,
                                  size_t parts) {
  auto layout = std::make_shared<Layout>();
  if (IsSplit(&found.lease)) {
    for (const SplitLease::Slice& slice : found.lease.state()->split()->slices()) {
      if (slice.lease.state() == nullptr) continue;
      const auto& lease = static_cast<const LocalLease&>(*slice.lease.state());
      if (lease.session() != session) return absl::UnavailableError("acquire: the session ended");
      const auto first_run = static_cast<uint32_t>(layout->runs.size());
      for (LaidChunk laid : lease.layout()->chunks) {
        laid.chunk += slice.first_key * static_cast<uint32_t>(parts);
        laid.first_run += first_run;
        layout->chunks.push_back(laid);
      }
      layout->runs.insert(layout->runs.end(), lease.layout()->runs.begin(),
                          lease.layout()->runs.end());
    }
  }
  Acquired acquired(session->mappings(), std::move(layout));
  acquired.leading_keys = found.leading_keys;
  acquired.leased_keys = found.leased_keys;
  acquired.lease = std::move(found.lease);
  return acquired;
}

}  // namespace

void LocalTransport::Find(Kind kind, const Ready& ready, const KeysQuery& query,
                          LocalSession::Time deadline, FoundCallback done) {
  const LocalSessionPtr& session = ready.session;
  const uint64_t id = session->NextId();
  local::MessageWriter& writer = KeysMessage(*session, kind, id, query);
  const bool leased = query.lease != LeaseMode::kNone;
  LocalSession::Call call{
      .kind = kind, .deadline = deadline, .done = nullptr, .late = nullptr, .copied = nullptr};
  call.done = [session, keys = query.keys.size(), parts = query.part_count, leased,
               asks_remote = AsksRemote(*session, query),
               done = std::move(done)](absl::StatusOr<Reply> reply) mutable {
    if (!reply.ok()) {
      std::move(done)(session, reply.status());
      return absl::OkStatus();
    }
    absl::StatusOr<Found> found =
        ReadFound(*reply, *session, keys, parts, leased, asks_remote);
    const absl::Status broken = found.ok() ? absl::OkStatus() : ProtocolStatus(found.status());
    std::move(done)(session, std::move(found));
    return broken;
  };
  if (leased) {
    call.late = [session, counters = counters_](Reply reply) {
      if (ReleaseLate(*session, reply)) counters->leases_reclaimed.fetch_add(1);
    };
  }
  session->Send(id, writer, std::move(call));
}

void LocalTransport::Lookup(Ns ns, const NamespaceSpec& spec, Keys keys,
                            const LookupOptions& options, Callback<LookupResult> done) {
  const absl::StatusOr<Ready> ready = Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  const size_t parts = PartCount(spec, options.parts);
  const ServerLimits limits = LimitsOf(*ready->session);
  if (NeedsSlices(keys, parts, limits)) {
    return LookupInSlices(LongCallOf(this, ns, spec, keys, parts, limits,
                                     DeadlineOf(options.deadline)),
                          options, /*whole=*/true, std::move(done));
  }
  if (absl::Status bad = CheckKeys(keys, parts, limits); !bad.ok()) return std::move(done)(bad);
  const bool leased = options.lease != LeaseMode::kNone;
  LeasedKeys what;
  if (leased) {
    what = {.ns = ready->digest,
            .keys = {keys.begin(), keys.end()},
            .parts = {options.parts.begin(), options.parts.end()},
            .part_count = parts};
  }
  // A leased lookup is a get: it keeps the places, so that a get under the lease sends no request.
  Find(leased ? Kind::kGet : Kind::kLookup, *ready,
       {.ns = ready->digest,
        .keys = keys,
        .parts = options.parts,
        .part_count = parts,
        .lease = options.lease,
        .transient = options.transient,
        .remote = {.wait_us = WholeMicroseconds(options.remote_wait),
                   .recompute_us_per_key = WholeMicroseconds(options.recompute_per_key)}},
       DeadlineOf(options.deadline),
       [what = std::move(what), done = std::move(done)](const LocalSessionPtr& session,
                                                        absl::StatusOr<Found> found) mutable {
         if (!found.ok()) return std::move(done)(found.status());
         LookupResult result{.leading_keys = found->leading_keys,
                             .leased_keys = found->leased_keys,
                             .promotion_us = found->promotion_us,
                             .remote_keys = found->remote.keys,
                             .remote_us = found->remote.us,
                             .remote_asked = found->remote.asked == 1,
                             .lease = {},
                             .row_bytes = found->row_bytes,
                             .g2_bits = std::move(found->g2_bits),
                             .g3_bits = std::move(found->g3_bits),
                             .remote_bits = std::move(found->remote_bits)};
         if (found->lease != 0) {
           result.lease = Lease(
               std::make_unique<LocalLease>(session, found->lease, found->layout, std::move(what)),
               std::max(1u, found->leased_keys), found->leased_bytes);
         }
         std::move(done)(std::move(result));
       });
}

void LocalTransport::Acquire(Ns ns, const NamespaceSpec& spec, Keys keys,
                             const AcquireOptions& options, Callback<Acquired> done) {
  const absl::StatusOr<Ready> ready = Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  const size_t parts = PartCount(spec, options.parts);
  const ServerLimits limits = LimitsOf(*ready->session);
  const LeaseMode mode = options.all_present ? LeaseMode::kAllPresent : LeaseMode::kLeadingRun;
  if (NeedsSlices(keys, parts, limits)) {
    return LookupInSlices(LongCallOf(this, ns, spec, keys, parts, limits,
                                     DeadlineOf(options.deadline)),
                          {.parts = options.parts, .lease = mode, .transient = options.transient},
                          /*whole=*/false,
                          [session = ready->session, parts,
                           done = std::move(done)](absl::StatusOr<LookupResult> found) mutable {
                            if (!found.ok()) return std::move(done)(found.status());
                            std::move(done)(LaidOpen(session, *std::move(found), parts));
                          });
  }
  if (absl::Status bad = CheckKeys(keys, parts, limits); !bad.ok()) return std::move(done)(bad);
  Find(Kind::kGet, *ready,
       {.ns = ready->digest,
        .keys = keys,
        .parts = options.parts,
        .part_count = parts,
        .lease = mode,
        .transient = options.transient},
       DeadlineOf(options.deadline),
       [done = std::move(done)](const LocalSessionPtr& session,
                                absl::StatusOr<Found> found) mutable {
         TestPoint("get-leased");
         if (!found.ok()) return std::move(done)(found.status());
         Acquired acquired(session->mappings(), found->layout);
         acquired.leading_keys = found->leading_keys;
         acquired.leased_keys = found->leased_keys;
         if (found->lease != 0) {
           acquired.lease = Lease(
               std::make_unique<LocalLease>(session, found->lease, found->layout, LeasedKeys{}),
               std::max(1u, found->leased_keys), found->leased_bytes);
         }
         std::move(done)(std::move(acquired));
       });
  TestPoint("get-sent");
}

template <typename T, typename Wire>
void LocalTransport::KeysCall(Kind kind, Ns ns, Keys keys, Parts parts, Deadline deadline,
                              Callback<T> done) {
  const absl::StatusOr<Ready> ready = Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  const NamespaceSpec& spec = static_cast<DeclaredNamespace&>(*ns).spec();
  const size_t part_count = PartCount(spec, parts);
  const ServerLimits limits = LimitsOf(*ready->session);
  if (NeedsSlices(keys, part_count, limits)) {
    return SumInSlices<T>(
        LongCallOf(this, ns, spec, keys, part_count, limits, DeadlineOf(deadline)),
        [this, kind, ns, parts](Keys some, Deadline left, Callback<T> sum) {
          KeysCall<T, Wire>(kind, ns, some, parts, left, std::move(sum));
        },
        std::move(done));
  }
  if (absl::Status bad = CheckKeys(keys, part_count, limits); !bad.ok()) {
    return std::move(done)(bad);
  }
  const uint64_t id = ready->session->NextId();
  local::MessageWriter& writer =
      KeysMessage(*ready->session, kind, id,
                  {.ns = ready->digest, .keys = keys, .parts = parts, .part_count = part_count});
  LocalSession::Call call{.kind = kind,
                          .deadline = DeadlineOf(deadline),
                          .done = nullptr,
                          .late = nullptr,
                          .copied = nullptr};
  call.done = [done = std::move(done)](absl::StatusOr<Reply> reply) mutable {
    if (!reply.ok()) {
      std::move(done)(reply.status());
      return absl::OkStatus();
    }
    const absl::StatusOr<Wire> said = ReadStruct<Wire>(*reply);
    if (said.ok()) {
      std::move(done)(Convert(*said, static_cast<T*>(nullptr)));
    } else {
      std::move(done)(said.status());
    }
    return said.status();
  };
  ready->session->Send(id, writer, std::move(call));
}

void LocalTransport::Touch(Ns ns, Keys keys, Parts parts, Deadline deadline,
                           Callback<uint64_t> done) {
  KeysCall<uint64_t, local::CountReply>(Kind::kTouch, ns, keys, parts, deadline, std::move(done));
}

void LocalTransport::Prefetch(Ns ns, Keys keys, Parts parts, Deadline deadline,
                              Callback<PrefetchResult> done) {
  KeysCall<PrefetchResult, local::PrefetchReply>(Kind::kPrefetch, ns, keys, parts, deadline,
                                                 std::move(done));
}

void LocalTransport::Delete(Ns ns, Keys keys, Parts parts, Deadline deadline,
                            Callback<uint64_t> done) {
  KeysCall<uint64_t, local::CountReply>(Kind::kDelete, ns, keys, parts, deadline, std::move(done));
}

void LocalTransport::Release(Lease lease, DoneCallback done) {
  if (forked() || !lease.alive()) return std::move(done)(absl::OkStatus());
  const bool split = IsSplit(&lease);
  const std::unique_ptr<LeaseState> state = std::move(lease).TakeState();
  if (split) {
    return ReleaseAll(this, std::move(static_cast<SplitLease&>(*state)).TakeLeases(),
                      std::move(done));
  }
  const auto* const granted = static_cast<const LocalLease*>(state.get());
  const LocalSessionPtr session = granted->session();
  // A lease that dies with its session meanwhile is given back as well.
  session->SendReleases(local::ReleaseEntry{.lease = granted->id()}, DeadlineOf(Deadline(0)),
                        [session, done = std::move(done)](absl::Status status) mutable {
                          std::move(done)(session->over() ? absl::OkStatus() : status);
                        });
}

absl::StatusOr<std::shared_ptr<const ArenaMap>> LocalTransport::Arena() {
  KVKEEP_ASSIGN_OR_RETURN(const LocalSessionPtr session, CurrentSession());
  return session->mappings()->shared_arena();
}

void LocalTransport::GetServerInfo(Deadline deadline, Callback<ServerInfo> done) {
  const absl::StatusOr<LocalSessionPtr> session = CurrentSession();
  if (!session.ok()) return std::move(done)(session.status());
  const uint64_t id = (*session)->NextId();
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kServerInfo), id);
  LocalSession::Call call{.kind = Kind::kServerInfo,
                          .deadline = DeadlineOf(deadline),
                          .done = nullptr,
                          .late = nullptr,
                          .copied = nullptr};
  call.done = [limits = LimitsOf(**session),
               done = std::move(done)](absl::StatusOr<Reply> reply) mutable {
    if (!reply.ok()) {
      std::move(done)(reply.status());
      return absl::OkStatus();
    }
    ServerInfo info{
        .version = "", .incarnation = 0, .state = "", .limits = limits, .features = {"local"}};
    const absl::StatusOr<local::ServerInfoReply> said = ReadInfo(*reply, &info.version);
    if (!said.ok()) {
      std::move(done)(said.status());
      return said.status();
    }
    info.incarnation = said->incarnation;
    info.state = StateName(said->state);
    std::move(done)(std::move(info));
    return absl::OkStatus();
  };
  (*session)->Send(id, writer, std::move(call));
}

}  // namespace kvkeep::client
