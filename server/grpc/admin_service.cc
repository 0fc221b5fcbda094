#include "server/grpc/admin_service.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "config/effective.h"
#include "server/grpc/to_grpc.h"
#include "server/observe/counters.h"
#include "server/observe/g4_counters.h"
#include "server/observe/names.h"
#include "server/requests/convert.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr uint64_t kMaxDrainTimeoutMs = 24ull * 3600 * 1000;

void FillTier(const TierSnapshot& tier, uint64_t hits, v1::TierStatus* out) {
  out->set_capacity_bytes(tier.capacity_bytes);
  out->set_used_bytes(tier.used_bytes);
  out->set_to_come_bytes(tier.to_come_bytes);
  out->set_chunks(tier.chunks);
  out->set_leased_bytes(tier.leased_bytes);
  out->set_reserved_bytes(tier.reserved_bytes);
  out->set_dirty_bytes(tier.dirty_bytes);
  out->set_unbacked_chunks(tier.unbacked_chunks);
  out->set_unbacked_bytes(tier.unbacked_bytes);
  out->set_waiting_chunks(tier.waiting_chunks);
  out->set_waiting_bytes(tier.waiting_bytes);
  out->set_hits(hits);
  if (tier.allocations > 0) {
    out->set_mean_extents_per_chunk(static_cast<double>(tier.extents_allocated) /
                                    static_cast<double>(tier.allocations));
  }
}

void FillDevice(const DeviceSnapshot& device, v1::DeviceStatus* out) {
  out->set_path(device.path);
  out->set_state(DeviceStateName(device.state));
  out->set_message(device.message);
  out->set_capacity_bytes(device.capacity_bytes);
  out->set_used_bytes(device.used_bytes);
  out->set_directory_bytes(device.directory_bytes);
  out->set_chunks(device.chunks);
  out->set_built_bytes(device.built_bytes);
  out->set_reads(device.times.read.count());
  out->set_read_ns(device.times.read.sum);
  out->set_writes(device.times.write.count());
  out->set_write_ns(device.times.write.sum);
}

void FillTenant(const TenantSnapshot& tenant, uint64_t sessions, const MessageAccount* messages,
                v1::TenantStatus* out) {
  out->set_name(ShownTenant(tenant.name));
  out->set_g2_capacity_bytes(tenant.g2.capacity_bytes);
  out->set_g2_used_bytes(tenant.g2.used_bytes);
  out->set_g2_leased_bytes(tenant.g2.leased_bytes);
  out->set_g3_used_bytes(tenant.g3_used_bytes);
  out->set_g3_quota_bytes(tenant.g3_quota_bytes);
  out->set_g3_share_bytes(tenant.g3_share_bytes);
  out->set_chunks(tenant.chunks);
  out->set_sessions(sessions);
  out->set_rejected_puts(tenant.counters.puts_rejected);
  out->set_g2_evictions(tenant.counters.g2_evictions);
  out->set_g3_evictions(tenant.counters.g3_evictions);
  out->set_g3_quota_evictions(tenant.counters.g3_quota_evictions);
  out->set_g3_pushed_out(tenant.counters.g3_pushed_out);
  out->set_g3_quota_refusals(tenant.counters.g3_quota_refusals);
  out->set_forgotten_chunks(tenant.counters.forgotten);
  out->set_keys_per_second(tenant.keys_per_second);
  out->set_bytes_per_second(tenant.bytes_per_second);
  out->set_key_rate_refusals(tenant.counters.key_rate_refusals);
  out->set_byte_rate_refusals(tenant.counters.byte_rate_refusals);
  if (messages == nullptr) return;
  out->set_local_message_bytes(messages->bytes.load(std::memory_order_relaxed));
  out->set_local_message_limit_bytes(messages->max_bytes);
}

void FillSession(const SessionSnapshot& session, v1::SessionStatus* out) {
  out->set_client_name(session.info.client_name);
  out->set_peer(session.info.peer);
  out->set_leases(session.leases);
  out->set_leased_bytes(session.leased_bytes);
  out->set_reserved_bytes(session.reserved_bytes);
  out->set_age_ms(ToMillis(session.age));
}

v1::G4State ToProto(ObjectStoreHealth::State state) {
  switch (state) {
    case ObjectStoreHealth::State::kWell: return v1::G4_STATE_WELL;
    case ObjectStoreHealth::State::kAway: return v1::G4_STATE_AWAY;
    case ObjectStoreHealth::State::kMisconfigured: return v1::G4_STATE_MISCONFIGURED;
  }
  return v1::G4_STATE_UNSPECIFIED;
}

void FillReuse(const ReuseSnapshot& reuse, v1::ShowReuseResponse* out) {
  out->set_measured_ms(ToMillis(reuse.measured_for));
  out->set_lookups(reuse.curve.requests);
  out->set_wanted_chunks(reuse.curve.wanted);
  out->set_found_chunks(reuse.leading);
  out->set_cold_chunks(reuse.curve.cold);
  for (size_t i = 0; i < ReuseCurve::kBuckets; ++i) {
    if (reuse.curve.at[i] <= 0) continue;
    v1::ReuseDistance* to = out->add_distances();
    to->set_below_bytes(ReuseCurve::BoundOf(i));
    to->set_chunks(reuse.curve.at[i]);
  }
  out->set_stored_chunks(reuse.curve.first_stored_chunks);
  out->set_stored_bytes(reuse.curve.first_stored_bytes);
  out->set_sampled_chunks(reuse.sampled_chunks);
  out->set_sampled_share(reuse.sampled_share);
}

void FillChanges(const ConfigKeeper::Changes& changes, v1::ReloadConfigResponse* out) {
  for (const ConfigDifference& change : changes) {
    v1::ConfigChange* to = out->add_changes();
    to->set_key(change.key);
    to->set_before(change.before);
    to->set_after(change.after);
  }
}

void FillConfig(const LoadResult& config, v1::ShowConfigResponse* out) {
  for (const EffectiveValue& value : EffectiveValues(config)) {
    v1::ConfigValue* to = out->add_values();
    to->set_key(value.key);
    to->set_value(value.value);
    to->set_origin(value.origin);
    to->set_default_value(value.default_value);
    to->set_live(value.live);
  }
}

}  // namespace

void FillStatus(const StoreSnapshot& snapshot, const ServerState& state, v1::StatusResponse* out) {
  out->set_version(state.version);
  out->set_state(state.serving.load(std::memory_order_acquire));
  out->set_uptime_ms(ToMillis(state.clock->Now() - state.started));
  FillTier(snapshot.g2, snapshot.counters.read_g2_hits, out->mutable_g2());
  FillTier(snapshot.g3, snapshot.counters.read_g3_hits, out->mutable_g3());
  for (const DeviceSnapshot& device : snapshot.devices) FillDevice(device, out->add_devices());
  std::vector<uint64_t> sessions(snapshot.tenants.size());
  for (const SessionSnapshot& session : snapshot.sessions) {
    FillSession(session, out->add_sessions());
    if (session.info.tenant.value() < sessions.size()) ++sessions[session.info.tenant.value()];
  }
  for (size_t i = 0; i < sessions.size(); ++i) {
    FillTenant(snapshot.tenants[i], sessions[i], state.MessagesOf(i), out->add_tenants());
  }
  auto& counters = *out->mutable_counters();
  for (const StoreCounterInfo& info : StoreCounterTable()) {
    counters[info.name] = snapshot.counters.*info.member;
  }
  for (const ServerCounterInfo& info : ServerCounterTable()) {
    counters[info.name] = (state.counters.*info.member).load(std::memory_order_relaxed);
  }
  for (const LocalCounterInfo& info : LocalCounterTable()) {
    counters[info.name] = (state.local.*info.member).load(std::memory_order_relaxed);
  }
  out->mutable_scrub()->set_asked_for(snapshot.scrub.asked_for);
  out->mutable_scrub()->set_looked_at(snapshot.scrub.looked_at);
  out->mutable_scrub()->set_of(snapshot.scrub.of);
  out->set_pid(static_cast<uint64_t>(getpid()));
  if (!snapshot.remote.has_value()) return;
  for (const RemoteCounterInfo& info : RemoteCounterTable()) {
    (*out->mutable_counters())[info.name] = (*snapshot.remote).*info.member;
  }
}

void FillG4(const G4Snapshot& g4, const RemoteCounters& counters, v1::StatusResponse* out) {
  v1::G4Status& to = *out->mutable_g4();
  to.set_where(g4.where);
  to.set_state(ToProto(g4.health.state));
  to.set_takes_puts(g4.health.takes_puts);
  to.set_error_code(g4.health.error.code);
  to.set_error_message(g4.health.error.message);
  to.set_what_to_do(g4.health.what_to_do);
  to.set_retry_in_ms(ToMillis(g4.health.retry_in));
  to.set_recalled_chunks(counters.recalled_chunks);
  to.set_recalled_bytes(counters.recalled_bytes);
  to.set_written_chunks(counters.written_chunks);
  to.set_written_bytes(counters.written_bytes);
  to.set_failed_recalls(counters.failed_recalls);
  to.set_failed_writes(counters.failed_writes);
  to.set_dropped_writes(counters.dropped_chunks);
  to.set_bad_objects(BadObjectsOf(g4, counters));
  to.set_searches(counters.searches);
  to.set_probes(g4.source.probes);
  auto& all = *out->mutable_counters();
  for (const SourceCounterInfo& info : SourceCounterTable()) {
    all[info.name] = g4.source.*info.member;
  }
  all["g4_checks"] = g4.checks.checks;
  all["g4_failed_checks"] = g4.checks.failed_checks;
  all["g4_epoch"] = g4.epoch;
  all["g4_failed_epoch_reads"] = g4.epochs.failed_reads;
  all["g4_failed_epoch_writes"] = g4.epochs.failed_writes;
  all["g4_bad_epochs"] = g4.epochs.bad_objects;
  all["g4_previous_key_searches"] = g4.previous_keys.searches;
  all["g4_previous_key_chunks"] = g4.previous_keys.found;
  if (g4.keys.has_value()) {
    all["g4_key_fetches"] = g4.keys->fetched;
    all["g4_failed_key_fetches"] = g4.keys->failed;
  }
  if (!g4.directory.has_value()) return;
  all["g4_leftover_files"] = g4.directory->leftover_files;
  all["g4_leftover_bytes"] = g4.directory->leftover_bytes;
  all["g4_unopened"] = g4.directory->unopened;
}

AdminService::AdminService(Deps deps) : deps_(std::move(deps)) {}

absl::Status AdminService::Begin(const Context& context, Asked* asked) {
  absl::StatusOr<std::string> who = deps_.callers->WhoAdmin(context);
  if (who.ok()) {
    deps_.state->counters.admin_calls.fetch_add(1, std::memory_order_relaxed);
    asked->who = *std::move(who);
    return absl::OkStatus();
  }
  deps_.state->counters.denied_admin_calls.fetch_add(1, std::memory_order_relaxed);
  // The peer is no key for repeated calls, as it has a new port each time.
  deps_.audit->Write({.call = asked->call,
                      .who = context.peer(),
                      .what = asked->what,
                      .outcome = who.status().ToString(),
                      .repeated_by = absl::StrCat("denied ", asked->call)});
  return who.status();
}

void AdminService::Record(const Asked& asked, std::string outcome) {
  deps_.audit->Write({.call = asked.call,
                      .who = asked.who,
                      .what = asked.what,
                      .outcome = std::move(outcome),
                      .repeated_by = ""});
}

void AdminService::RecordLook(const Asked& asked) {
  // A tool is another process each time, but its user is the same.
  const size_t user = asked.who.find(" uid=");
  deps_.audit->Write(
      {.call = asked.call,
       .who = asked.who,
       .what = asked.what,
       .outcome = "OK",
       .repeated_by = absl::StrCat(
           asked.call, " ", user == std::string::npos ? asked.who : asked.who.substr(user))});
}

grpc::ServerUnaryReactor* AdminService::Status(Context* context, const v1::StatusRequest*,
                                               v1::StatusResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Asked asked{.call = "Status", .what = "", .who = ""};
  const absl::Status allowed = Begin(*context, &asked);
  if (!allowed.ok()) {
    reactor->Finish(ToGrpc(allowed, deps_.store->incarnation()));
    return reactor;
  }
  const StoreSnapshot snapshot = deps_.snapshot();
  FillStatus(snapshot, *deps_.state, response);
  const StatusFacts facts = deps_.facts();
  if (facts.g4.has_value()) {
    FillG4(*facts.g4, snapshot.remote.value_or(RemoteCounters{}), response);
  }
  if (facts.fleet.has_value()) FillPeers(*facts.fleet, response);
  response->set_incarnation(deps_.store->incarnation().value());
  response->set_arena(facts.arena);
  response->set_io_engine(facts.io_engine);
  response->set_gpu(facts.gpu);
  auto& counters = *response->mutable_counters();
  counters["gpu_arena_registered_bytes"] = facts.gpu_arena_registered_bytes;
  counters["gpu_arena_refused_bytes"] = facts.gpu_arena_refused_bytes;
  RecordLook(asked);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::Clear(Context* context, const v1::ClearRequest* request,
                                              v1::ClearResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const std::string& digest = request->namespace_digest();
  Asked asked{
      .call = "Clear",
      .what = absl::StrCat(
          digest.empty() ? "all namespaces" : absl::BytesToHexString(digest.substr(0, 16)),
          request->g4() ? " and G4" : ""),
      .who = ""};
  const auto end = [this, reactor](const absl::Status& status) {
    reactor->Finish(ToGrpc(status, deps_.store->incarnation()));
  };
  if (const absl::Status may = Begin(*context, &asked); !may.ok()) {
    end(may);
    return reactor;
  }
  const auto over = [this, asked = std::move(asked), response, end](const absl::Status& status) {
    Record(asked, status.ok() ? absl::StrCat("OK, chunks=", response->cleared_chunks())
                              : status.ToString());
    end(status);
  };
  const auto clear = [this, digest, response, over](const absl::Status& before) {
    const absl::Status cleared = before.ok() ? DoClear(digest, response) : before;
    if (!cleared.ok()) return over(cleared);
    deps_.store->WhenDeleted(/*durable=*/false, over);
  };
  if (!request->g4()) {
    clear(absl::OkStatus());
    return reactor;
  }
  absl::Status may = absl::OkStatus();
  if (!digest.empty()) {
    may = absl::InvalidArgumentError("g4: all of G4 is cleared, so namespace_digest must be empty");
  } else if (!deps_.facts().g4.has_value()) {
    may = absl::FailedPreconditionError("g4: nothing lies beyond this node");
  } else {
    // Before the new epoch begins, so that no chunk of this node is written in it.
    may = DoClear(digest, response);
  }
  if (!may.ok()) {
    over(may);
    return reactor;
  }
  deps_.clear_g4([clear, response](const absl::Status& status) {
    response->set_g4(status.ok());
    // And after it began, as searches meanwhile may have brought chunks of the old one.
    clear(status);
  });
  return reactor;
}

absl::Status AdminService::DoClear(const std::string& digest, v1::ClearResponse* response) {
  std::optional<NamespaceDigest> ns;
  if (!digest.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(ns, ParseNamespaceDigest(digest));
  }
  response->set_cleared_chunks(response->cleared_chunks() + deps_.store->Clear(ns));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* AdminService::Drain(Context* context, const v1::DrainRequest* request,
                                              v1::DrainResponse* response) {
  // The call stays open until the drain is over; gRPC keeps the response until Finish.
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const std::chrono::nanoseconds timeout =
      request->timeout_ms() == 0
          ? deps_.drain_timeout()
          : std::chrono::milliseconds(std::min(request->timeout_ms(), kMaxDrainTimeoutMs));
  Asked asked{.call = "Drain",
              .what = absl::StrCat("timeout_ms=", ToMillis(timeout), request->g4() ? " g4" : "",
                                   request->to_peers() ? " to_peers" : ""),
              .who = ""};
  absl::Status allowed = Begin(*context, &asked);
  if (allowed.ok() && request->to_peers() && !deps_.drainer->has_peers()) {
    allowed = absl::FailedPreconditionError("to_peers: this node has no fleet.peers");
  }
  if (!allowed.ok()) {
    reactor->Finish(ToGrpc(allowed, deps_.store->incarnation()));
    return reactor;
  }
  Record(asked, "begun");  // the daemon may end before it is over
  const auto over = [this, asked = std::move(asked), reactor, response](Drainer::Left left) {
    Record(asked, absl::StrCat("OK, dirty_chunks_left=", left.dirty_chunks));
    response->set_dirty_chunks_left(left.dirty_chunks);
    if (left.g4_chunks.has_value()) response->set_g4_chunks_left(*left.g4_chunks);
    if (left.g4_removals.has_value()) response->set_g4_removals_left(*left.g4_removals);
    if (left.to_peers.has_value()) {
      response->set_handed_chunks(left.to_peers->chunks);
      response->set_unhanded_chunks(left.to_peers->left);
    }
    reactor->Finish(grpc::Status::OK);
  };
  deps_.drainer->Start(timeout, {.g4 = request->g4(), .to_peers = request->to_peers()}, over);
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ReloadConfig(Context* context,
                                                     const v1::ReloadConfigRequest*,
                                                     v1::ReloadConfigResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Asked asked{.call = "ReloadConfig", .what = deps_.config_file, .who = ""};
  const absl::Status allowed = Begin(*context, &asked);
  if (!allowed.ok()) {
    reactor->Finish(ToGrpc(allowed, deps_.store->incarnation()));
    return reactor;
  }
  deps_.reload([this, asked = std::move(asked), reactor,
                response](const absl::StatusOr<ConfigKeeper::Changes>& reloaded) {
    Record(asked, reloaded.ok() ? absl::StrCat("OK, changes=", reloaded->size())
                                : reloaded.status().ToString());
    if (reloaded.ok()) FillChanges(*reloaded, response);
    response->set_hash(deps_.state->config.hash());
    reactor->Finish(ToGrpc(reloaded.status(), deps_.store->incarnation()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ShowConfig(Context* context, const v1::ShowConfigRequest*,
                                                   v1::ShowConfigResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Asked asked{.call = "ShowConfig", .what = "", .who = ""};
  absl::Status status = Begin(*context, &asked);
  if (status.ok()) {
    const std::optional<LoadResult> now = deps_.config();
    if (now.has_value()) {
      FillConfig(*now, response);
      response->set_file(deps_.config_file);
      response->set_hash(deps_.state->config.hash());
    } else {
      status = absl::FailedPreconditionError("this daemon was started without a config");
    }
    RecordLook(asked);
  }
  reactor->Finish(ToGrpc(status, deps_.store->incarnation()));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ListNamespaces(Context* context,
                                                       const v1::ListNamespacesRequest*,
                                                       v1::ListNamespacesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Asked asked{.call = "ListNamespaces", .what = "", .who = ""};
  const absl::Status status = Begin(*context, &asked);
  if (status.ok()) {
    for (const NamespaceUse& use : deps_.store->Namespaces()) {
      v1::NamespaceStatus* to = response->add_namespaces();
      if (use.digest != NamespaceDigest()) to->set_digest(std::string(use.digest.view()));
      to->set_tenant(use.tenant);
      to->set_model(use.model);
      to->set_sessions(use.sessions);
      to->set_chunks(use.chunks);
      to->set_g2_bytes(use.g2_bytes);
      to->set_g3_bytes(use.g3_bytes);
    }
    RecordLook(asked);
  }
  reactor->Finish(ToGrpc(status, deps_.store->incarnation()));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ShowReuse(Context* context, const v1::ShowReuseRequest*,
                                                  v1::ShowReuseResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Asked asked{.call = "ShowReuse", .what = "", .who = ""};
  const absl::Status status = Begin(*context, &asked);
  if (status.ok()) {
    FillReuse(deps_.store->reuse(), response);
    RecordLook(asked);
  }
  reactor->Finish(ToGrpc(status, deps_.store->incarnation()));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::Evict(Context* context, const v1::EvictRequest* request,
                                              v1::EvictResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Asked asked{.call = "Evict",
              .what = absl::StrCat(request->bytes(), " bytes of ", request->g3() ? "g3" : "g2",
                                   ", tenant=", request->tenant()),
              .who = ""};
  absl::Status status = Begin(*context, &asked);
  if (status.ok()) {
    const absl::StatusOr<EvictResult> evicted = deps_.store->Evict(
        {.of_g3 = request->g3(), .tenant = request->tenant(), .bytes = request->bytes()});
    status = evicted.status();
    if (evicted.ok()) {
      response->set_chunks(evicted->chunks);
      response->set_bytes(evicted->bytes);
    }
    Record(asked, status.ok() ? absl::StrCat("OK, chunks=", evicted->chunks) : status.ToString());
  }
  reactor->Finish(ToGrpc(status, deps_.store->incarnation()));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::Verify(Context* context, const v1::VerifyRequest* request,
                                               v1::VerifyResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Asked asked{.call = "Verify",
              .what = absl::StrCat("bytes_per_second=", request->bytes_per_second()),
              .who = ""};
  const absl::Status status = Begin(*context, &asked);
  if (status.ok()) {
    deps_.store->ScrubRound(request->bytes_per_second());
    Record(asked, "OK");
  }
  reactor->Finish(ToGrpc(status, deps_.store->incarnation()));
  return reactor;
}

}  // namespace kvkeep
