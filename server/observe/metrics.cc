#include "server/observe/metrics.h"

#include <prometheus/text_serializer.h>

#include <map>

#include "server/observe/counters.h"
#include "server/observe/g4_counters.h"
#include "server/observe/metric_families.h"
#include "server/observe/names.h"

namespace kvkeep {
namespace {

using Families = MetricFamilies;
using Labels = MetricFamilies::Labels;

constexpr const char* kTierNames[] = {"g2", "g3"};

void AddTier(const char* tier, const TierSnapshot& snapshot, Families* out) {
  const Labels labels = {{"tier", tier}};
  out->Gauge("tier_capacity_bytes", "Size of a tier", snapshot.capacity_bytes, labels);
  out->Gauge("tier_used_bytes", "Allocated blocks of a tier", snapshot.used_bytes, labels);
  out->Gauge("tier_chunks", "Chunks in a tier", snapshot.chunks, labels);
  out->Gauge("tier_leased_bytes", "Bytes under leases", snapshot.leased_bytes, labels);
  out->Gauge("tier_reserved_bytes", "Bytes of puts and promotions in progress",
             snapshot.reserved_bytes, labels);
  out->Gauge("tier_dirty_bytes", "Bytes not yet written back", snapshot.dirty_bytes, labels);
  out->Counter("tier_allocations_total", "Places given out", snapshot.allocations, labels);
  out->Counter("tier_allocated_extents_total", "Extents of the places given out",
               snapshot.extents_allocated, labels);
}

void AddUnbacked(const TierSnapshot& g2, Families* out) {
  out->Gauge("g2_to_come_bytes", "Bytes that G2 gains when their memory becomes free",
             g2.to_come_bytes);
  out->Gauge("unbacked_chunks", "Chunks that only G2 holds, with no write under way",
             g2.unbacked_chunks);
  out->Gauge("unbacked_bytes", "Bytes of chunks that only G2 holds, with no write under way",
             g2.unbacked_bytes);
  out->Gauge("unbacked_waiting_chunks",
             "Unbacked chunks that are written as soon as there is room for them",
             g2.waiting_chunks);
  out->Gauge("unbacked_waiting_bytes",
             "Bytes of unbacked chunks that are written as soon as there is room",
             g2.waiting_bytes);
}

// Adds one tenant's series; the configuration bounds their number.
void AddTenant(const TenantSnapshot& tenant, const PinBudget::Use& pins,
               const MessageAccount* messages, Families* out) {
  const std::string name = ShownTenant(tenant.name);
  const auto with = [&name](Labels labels) {
    labels.insert(labels.begin(), {"tenant", name});
    return labels;
  };
  const Labels g2 = with({{"tier", "g2"}}), g3 = with({{"tier", "g3"}});
  out->Gauge("quota_used_bytes", "Bytes of a tier that a tenant holds", tenant.g2.used_bytes, g2);
  out->Gauge("quota_used_bytes", "", tenant.g3_used_bytes, g3);
  out->Gauge("quota_limit_bytes", "Bytes of a tier that a tenant may hold; 0: no quota",
             tenant.g2.capacity_bytes, g2);
  out->Gauge("quota_limit_bytes", "", tenant.g3_quota_bytes, g3);
  out->Gauge("quota_share_bytes", "Bytes of G3 that no other tenant takes from a tenant",
             tenant.g3_share_bytes, g3);
  out->Gauge("tenant_chunks", "Chunks of a tenant, in any tier", tenant.chunks, with({}));
  out->Gauge("tenant_pinned_bytes", "Payload bytes pinned by a tenant's Get calls now", pins.bytes,
             with({}));
  if (messages != nullptr) {
    out->Gauge(
        "tenant_local_message_bytes",
        "Memory of a tenant's half messages, unfinished puts and unread replies, by the local path",
        messages->bytes.load(std::memory_order_relaxed), with({}));
    out->Gauge("tenant_local_message_limit_bytes",
               "Limit of tenant_local_message_bytes: the tenant's part of limits.local_memory",
               messages->max_bytes, with({}));
  }
  out->Counter("tenant_pin_waits_total",
               "Times that a tenant's Get waited for its others to be sent, because of its part of "
               "limits.pinned_bytes",
               pins.waits, with({}));
  const TenantCounters& counters = tenant.counters;
  out->Counter("quota_rejections_total",
               "Puts, write-backs and calls that a tenant's limits refused", counters.puts_rejected,
               with({{"what", "put"}}));
  out->Counter("quota_rejections_total", "", counters.g3_quota_refusals,
               with({{"what", "write_back"}}));
  out->Counter("quota_rejections_total", "", counters.key_rate_refusals,
               with({{"what", "keys_per_second"}}));
  out->Counter("quota_rejections_total", "", counters.byte_rate_refusals,
               with({{"what", "bytes_per_second"}}));
  const char* const evictions = "tenant_evicted_chunks_total";
  out->Counter(evictions, "Evicted chunks of a tenant, by reason", counters.g2_evictions,
               with({{"tier", "g2"}, {"reason", "own"}}));
  out->Counter(evictions, "", counters.g3_quota_evictions,
               with({{"tier", "g3"}, {"reason", "quota"}}));
  out->Counter(evictions, "", counters.g3_pushed_out,
               with({{"tier", "g3"}, {"reason", "other_tenant"}}));
  out->Counter(evictions, "",
               counters.g3_evictions - counters.g3_quota_evictions - counters.g3_pushed_out,
               with({{"tier", "g3"}, {"reason", "own"}}));
  out->Counter(evictions, "", counters.forgotten,
               with({{"tier", "any"}, {"reason", "table_full"}}));
}

void AddDevice(const DeviceSnapshot& device, Families* out) {
  const Labels labels = {{"path", device.path}};
  out->Gauge("device_capacity_bytes", "Size of a device, as configured", device.capacity_bytes,
             labels);
  out->Gauge("device_used_bytes", "Allocated blocks of a device", device.used_bytes, labels);
  out->Gauge("device_directory_bytes", "Files of a device, index included", device.directory_bytes,
             labels);
  out->Gauge("device_chunks", "Chunks on a device", device.chunks, labels);
  for (const DeviceState state : {DeviceState::kOk, DeviceState::kDegraded, DeviceState::kReadOnly,
                                  DeviceState::kOffline, DeviceState::kJoining}) {
    out->Gauge("device_state_info", "1 for the state that a device is in", device.state == state,
               {{"path", device.path}, {"state", DeviceStateName(state)}});
  }
}

void AddDeviceTimes(const DeviceSnapshot& device, Families* out) {
  const auto add = [&](const char* operation, const HistogramCounts& counts) {
    out->Histogram("device_operation_duration_seconds",
                   "Operations of a device, from submission to completion", counts,
                   {{"path", device.path}, {"operation", operation}});
  };
  add("read", device.times.read);
  add("write", device.times.write);
  add("sync", device.times.sync);
}

void AddIndex(const DeviceSnapshot& device, Families* out) {
  const Labels labels = {{"path", device.path}};
  const IndexStats& index = device.index;
  out->Gauge("rocksdb_table_bytes", "Live table files of a device's index", index.table_bytes,
             labels);
  out->Gauge("rocksdb_memtable_bytes", "Bytes of a device's index that are not in a table file yet",
             index.memtable_bytes, labels);
  out->Gauge("rocksdb_pending_compaction_bytes",
             "Estimated bytes of a device's index that compactions have to rewrite",
             index.pending_compaction_bytes, labels);
  out->Gauge("rocksdb_running_compactions", "Compactions of the index under way", index.compactions,
             labels);
  out->Gauge("rocksdb_running_flushes", "Flushes of the index under way", index.flushes, labels);
  out->Gauge("rocksdb_writes_stopped_info", "1 while the index takes no writes",
             index.takes_no_writes, labels);
  out->Counter("rocksdb_background_errors_total", "Flushes and compactions that failed",
               index.background_errors, labels);
  out->Counter("rocksdb_log_damages_total",
               "Damaged places that the start found in the log of a device's index; the log behind "
               "them is lost",
               index.log_damages, labels);
  out->Counter("rocksdb_stalls_total", "Times that the index began to slow down or to stop writes",
               index.slowed_writes, {{"path", device.path}, {"kind", "slowdown"}});
  out->Counter("rocksdb_stalls_total", "", index.stopped_writes,
               {{"path", device.path}, {"kind", "stop"}});
}

void AddRequests(const RequestTimes& times, Families* out) {
  for (size_t listener = 0; listener < kListeners; ++listener) {
    for (size_t operation = 0; operation < kOperations; ++operation) {
      if (!ServesOperation(static_cast<Listener>(listener), static_cast<Operation>(operation))) {
        continue;
      }
      const Labels labels = {{"listener", kListenerNames[listener]},
                             {"operation", kOperationNames[operation]}};
      out->Histogram(
          "request_duration_seconds", "Requests, from their arrival to the answer",
          times.counts(static_cast<Listener>(listener), static_cast<Operation>(operation)), labels);
      for (size_t code = 0; code < kRequestCodes.size(); ++code) {
        Labels with_code = labels;
        with_code.push_back({"code", absl::StatusCodeToString(kRequestCodes[code])});
        out->Counter(
            "requests_total", "Requests by status code; UNKNOWN: any other code",
            times.count(static_cast<Listener>(listener), static_cast<Operation>(operation), code),
            with_code);
      }
    }
  }
}

void AddLife(const LifeSnapshot& life, Families* out) {
  const auto add = [out](const char* name, const char* help, const LifeSnapshot::Counts& counts) {
    for (size_t tier = 0; tier < counts.size(); ++tier) {
      out->Histogram(name, help, counts[tier], {{"tier", kTierNames[tier]}});
    }
  };
  add("chunk_lifetime_seconds", "Time that evicted chunks had been in the tier; of a sample",
      life.lifetime);
  add("chunk_idle_before_evict_seconds",
      "Time since a chunk was last asked for when it was evicted; of a sample", life.idle);
  add("chunk_wanted_again_seconds",
      "Time from a chunk's eviction from the tier until it was asked for again; of a sample",
      life.wanted_again);
  out->Gauge("chunk_sample_ratio",
             "Part of the chunks in the samples of chunk_lifetime, chunk_idle_before_evict and "
             "chunk_wanted_again",
             1.0 / static_cast<double>(life.one_in));
}

// Adds the series of namespaces; NamespaceMeters bounds their number.
void AddNamespaces(const std::vector<NamespaceSnapshot>& namespaces, Families* out) {
  const auto add = [out](const NamespaceName& name, double tokens) {
    out->Counter("tokens_saved_total", "Tokens whose chunks were handed to readers", tokens,
                 {{"tenant", name.tenant}, {"model", name.model}, {"namespace", name.digest}});
  };
  for (const NamespaceSnapshot& one : namespaces) add(*one.name, one.tokens_served);
}

void AddProcess(const ProcessStats& process, Families* out) {
  out->Counter("process_cpu_seconds_total", "User and system CPU time", process.cpu_seconds);
  out->Gauge("process_resident_memory_bytes", "Resident memory, G2 included",
             process.resident_bytes);
  out->Gauge("process_virtual_memory_bytes", "Address space", process.virtual_bytes);
  out->Gauge("process_open_fds", "Open descriptors", process.open_fds);
  out->Gauge("process_max_fds", "Limit of open descriptors", process.max_fds);
  out->Gauge("process_threads", "Threads", process.threads);
  out->Gauge("process_start_time_seconds", "Unix time of the start", process.start_unix_seconds);
}

void AddConfig(const ServerState& state, Families* out) {
  out->Gauge("recovery_duration_seconds",
             "Time that this start took to find the chunks in the tiers",
             static_cast<double>(state.start.recovery_ns.load()) / 1e9);
  out->Gauge("config_hash_info", "1; the label has the hash of the configuration in effect", 1,
             {{"hash", state.config.hash()}});
  out->Gauge("config_last_reload_successful", "1 if the last reload of the config was successful",
             state.config.last_reload_ok.load());
  out->Gauge("config_last_reload_success_timestamp_seconds",
             "Unix time when a config last took effect, at the start or by a reload",
             state.config.last_success_unix_seconds.load());
}

void AddArena(const Arena::Stats& stats, Families* out) {
  out->Gauge("arena_prefaulted_bytes", "Arena bytes whose pages are present",
             stats.prefaulted_bytes);
  out->Gauge("arena_huge_page_bytes", "Arena bytes backed by huge pages", stats.huge_page_bytes);
  out->Gauge("g2_numa_refused_bytes",
             "Bytes of G2 that the kernel did not place on the requested NUMA node",
             stats.numa_refused_bytes);
  out->Counter("arena_memory_errors_total", "Pages of G2 that could not be read (SIGBUS)",
               stats.memory_errors);
  out->Gauge("arena_survives_restart_info", "1 when G2 outlives the daemon",
             stats.survives_restart);
}

void AddIo(const IoEngine::Stats& stats, Families* out) {
  const Labels read = {{"kind", "read"}}, write = {{"kind", "write"}};
  out->Counter("io_operations_total", "Device operations completed", stats.reads, read);
  out->Counter("io_operations_total", "", stats.writes, write);
  out->Counter("io_bytes_total", "Device bytes moved", stats.read_bytes, read);
  out->Counter("io_bytes_total", "", stats.write_bytes, write);
  out->Counter("io_errors_total", "Device operations that failed", stats.errors);
  out->Counter("io_short_resumed_total", "Short I/O continued", stats.short_resumed);
  out->Gauge("io_shared_buffers",
             "Arena segments that rings took over from the ring that pinned them",
             stats.shared_buffers);
  out->Counter("io_buffers_total", "Operations by kind of memory", stats.fixed_buffer_ios,
               {{"memory", "registered"}});
  out->Counter("io_buffers_total", "", stats.plain_buffer_ios, {{"memory", "plain"}});
  out->Counter("io_buffered_opens_total",
               "Files opened without O_DIRECT, which the file system does not support",
               stats.buffered_opens);
  out->Gauge("io_in_flight_operations", "Operations in the kernel now", stats.in_flight);
  out->Gauge("io_queued_operations", "Operations waiting in the engine now", stats.queued);
}

void AddGpu(const GpuPath::Stats& stats, Families* out) {
  const GpuDevice::Stats& sum = stats.sum;
  out->Gauge("gpu_path_on_info", "1 when NVIDIA's driver is loaded; kvkeep status says why not",
             stats.on);
  out->Gauge("gpu_devices", "GPUs with a context of the daemon", stats.devices,
             {{"state", "good"}});
  out->Gauge("gpu_devices", "", stats.broken, {{"state", "given_up"}});
  out->Gauge("gpu_refused_tenants",
             "Tenants that may use no GPU any more, because they broke contexts",
             stats.tenants_off);
  out->Gauge("gpu_arena_bytes", "Bytes of G2 given to NVIDIA's driver for registration",
             stats.pinned_bytes, {{"state", "registered"}});
  out->Gauge("gpu_arena_bytes", "", stats.refused_bytes, {{"state", "refused"}});
  out->Gauge("gpu_open_handles", "Ranges of workers' GPU memory that are open", sum.registrations);
  out->Counter("gpu_refused_handles_total",
               "Ranges of workers' GPU memory that the driver did not open",
               sum.refused_registrations, {{"reason", "refused"}});
  out->Counter("gpu_refused_handles_total", "", stats.unanswered, {{"reason", "no_answer"}});
  out->Gauge("gpu_copies_waiting", "Copies between GPUs and G2 not given to the driver yet",
             sum.queued_copies);
  out->Gauge("gpu_copies_issued", "Copies between GPUs and G2 that the driver has",
             sum.issued_copies);
  out->Counter("gpu_copies_total", "Copies between GPUs and G2", sum.done_copies,
               {{"result", "done"}});
  out->Counter("gpu_copies_total", "", sum.failed_copies, {{"result", "failed"}});
  out->Counter("gpu_late_copies_total", "Failed copies that were over their deadline",
               sum.late_copies);
  out->Counter("gpu_abandoned_copies_total", "Failed copies that the driver never ended",
               sum.abandoned_copies);
  out->Counter("gpu_copied_bytes_total", "Bytes of the completed copies between GPUs and G2",
               sum.bytes_to_arena, {{"direction", "to_g2"}});
  out->Counter("gpu_copied_bytes_total", "", sum.bytes_to_gpu, {{"direction", "to_gpu"}});
  out->Counter("gpu_pieces_total", "Pieces that the driver was asked to copy", sum.pieces);
  out->Counter("gpu_submits_total", "Calls of the driver for these pieces", sum.submits);
}

void AddHttp(const HttpCounters& http, Families* out) {
  const char* const dropped = "http_dropped_connections_total";
  out->Counter(dropped, "Connections of the metrics port closed without an answer", http.slow,
               {{"reason", "slow"}});
  out->Counter(dropped, "", http.crowded_out, {{"reason", "crowded_out"}});
  out->Counter("http_unauthorised_requests_total", "Requests for this page without a known token",
               http.unauthorised);
}

void AddEvents(const PublisherCounters& events, Families* out) {
  out->Counter("zmq_messages_total", "Messages published to routers", events.messages);
  out->Counter("zmq_blocks_total", "Blocks in the messages to routers", events.stored_blocks,
               {{"event", "stored"}});
  out->Counter("zmq_blocks_total", "", events.removed_blocks, {{"event", "removed"}});
  out->Counter("zmq_announcements_total", "Times that all chunks were announced anew",
               events.announcements);
  out->Counter("zmq_untold_chunks_total",
               "Chunks not announced, because their metadata could not be read, names no tokens, "
               "or names more blocks than a chunk can have",
               events.untold_chunks);
  out->Counter("zmq_replays_total", "Replays of messages to subscribers", events.replays);
  out->Counter("zmq_dropped_subscribers_total",
               "Subscriptions ended because too much waited for all subscribers together",
               events.dropped_subscribers);
  out->Gauge("zmq_queued_bytes", "Bytes waiting for subscribers", events.queued_bytes);
  out->Gauge("zmq_subscribers", "Subscriptions now", events.subscribers);
}

void AddBeyondNode(const MetricsInput& input, Families* out) {
  if (input.store.remote.has_value()) AddRemote(*input.store.remote, out);
  if (input.g4.has_value()) AddG4(*input.g4, out);
  if (!input.fleet.has_value()) return;
  AddPeers(*input.fleet, out);
  out->Counter("peer_displaced_chunks_total", "Chunks that left G2 for those of nodes that leave",
               input.store.offers.displaced_chunks);
}

}  // namespace

std::vector<prometheus::MetricFamily> ToMetricFamilies(const MetricsInput& input,
                                                       MetricsView view) {
  Families out;
  const ServerState& state = *input.state;
  out.Gauge("build_info", "1; the version is in the label", 1, {{"version", state.version}});
  const auto uptime = std::chrono::duration<double>(state.clock->Now() - state.started);
  out.Gauge("uptime_seconds", "Time since the start", uptime.count());
  // Every loop has a series from the first scrape on; a loop that does not exist has no lag.
  std::map<std::string, double> lags = {{"accept", 0}, {"copy", 0}, {"io", 0}, {"local", 0}};
  for (const LoopWatch::Lag& loop : state.loops.lags()) {
    double& lag = lags[loop.loop];
    lag = std::max(lag, std::chrono::duration<double>(loop.lag).count());
  }
  for (const auto& [loop, seconds] : lags) {
    out.Gauge(
        "event_loop_lag_seconds",
        "Time that a probe waited for a thread; a probe of the copy pool goes ahead of its queue",
        seconds, {{"loop", loop}});
  }
  out.Gauge("serving_info", "1 while puts and new sessions are taken",
            state.serving.load() == v1::SERVING_STATE_SERVING);
  for (const StoreCounterInfo& info : StoreCounterTable()) {
    out.Add(info.metric, input.store.counters.*info.member);
  }
  for (const ServerCounterInfo& info : ServerCounterTable()) {
    out.Add(info.metric, (state.counters.*info.member).load(std::memory_order_relaxed));
  }
  for (const LocalCounterInfo& info : LocalCounterTable()) {
    out.Add(info.metric, (state.local.*info.member).load(std::memory_order_relaxed));
  }
  AddTier("g2", input.store.g2, &out);
  AddTier("g3", input.store.g3, &out);
  AddRequests(state.times, &out);
  out.Histogram("store_lock_hold_duration_seconds", "Holds of the store's lock",
                input.store.lock_hold);
  out.Histogram("store_lock_wait_duration_seconds",
                "Waits for the store's lock, one before each hold; 0: it was free",
                input.store.lock_wait);
  out.Histogram("write_back_age_seconds", "Time from a chunk's seal until it was written to G3",
                input.store.write_back_age);
  AddLife(input.store.life, &out);
  AddNamespaces(input.store.namespaces, &out);
  AddConfig(state, &out);
  AddProcess(input.process, &out);
  AddEvents(state.events, &out);
  out.Gauge("dirty_chunks", "Chunks not yet written back", input.store.dirty_chunks);
  out.Gauge("oldest_dirty_age_seconds", "Wait of the oldest dirty chunk; 0: there is none",
            std::chrono::duration<double>(input.store.oldest_dirty_age).count());
  AddUnbacked(input.store.g2, &out);
  out.Gauge("encryption_buffer_bytes", "Memory that write-backs encrypt into",
            input.store.cipher_buffer_bytes);
  out.Gauge("sessions", "Sessions open now", input.store.sessions.size());
  for (const DeviceSnapshot& device : input.store.devices) {
    AddDevice(device, &out);
    AddDeviceTimes(device, &out);
    AddIndex(device, &out);
  }
  for (uint32_t t = 0; t < input.store.tenants.size(); ++t) {
    AddTenant(input.store.tenants[t], state.pins.UseOf(TenantId(t)), state.MessagesOf(t), &out);
  }
  AddArena(input.arena, &out);
  AddIo(input.io, &out);
  AddGpu(input.gpu, &out);
  AddHttp(state.http, &out);
  AddBeyondNode(input, &out);
  if (view == MetricsView::kTotals) out.SumUpWithout({"tenant", "model", "namespace", "path"});
  return out.Take();
}

std::string MetricsText(const MetricsInput& input, MetricsView view) {
  return prometheus::TextSerializer().Serialize(ToMetricFamilies(input, view));
}

}  // namespace kvkeep
