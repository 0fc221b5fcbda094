#include "server/metrics.h"

#include <prometheus/text_serializer.h>

#include "server/convert.h"
#include "server/counters.h"

namespace kvkeep {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
  void Add(const MetricInfo& info, uint64_t value) {
    Labels labels;
    for (const MetricLabel& label : info.labels) {
      if (label.name != nullptr) labels.push_back({label.name, label.value});
    }
    Add(info.family, info.help, info.gauge, static_cast<double>(value) * info.scale,
        std::move(labels));
  }
  void Gauge(const char* name, const char* help, double value, Labels labels = {}) {
    Add(name, help, true, value, std::move(labels));
  }
  void Counter(const char* name, const char* help, double value, Labels labels = {}) {
    Add(name, help, false, value, std::move(labels));
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  void Add(const char* name, const char* help, bool gauge, double value, Labels labels) {
    MetricFamily& family = FamilyOf(absl::StrCat("kvkeep_", name), help, gauge);
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = std::move(labels);
    (gauge ? metric.gauge.value : metric.counter.value) = value;
  }
  MetricFamily& FamilyOf(const std::string& name, const char* help, bool gauge) {
    for (MetricFamily& family : families_) {
      if (family.name == name) return family;
    }
    return families_.emplace_back(
        MetricFamily{name, help, gauge ? MetricType::Gauge : MetricType::Counter, {}});
  }

  std::vector<MetricFamily> families_;
};

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

// As many series as the configuration has tenants.
void AddTenant(const TenantSnapshot& tenant, Families* out) {
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
  out->Gauge("quota_share_bytes", "Bytes of G3 up to which no other tenant takes any",
             tenant.g3_share_bytes, g3);
  out->Gauge("tenant_chunks", "Chunks of a tenant, in any tier", tenant.chunks, with({}));
  const TenantCounters& counters = tenant.counters;
  out->Counter("quota_rejections_total", "What a tenant's limits kept out", counters.puts_rejected,
               with({{"what", "put"}}));
  out->Counter("quota_rejections_total", "", counters.g3_quota_refusals,
               with({{"what", "write_back"}}));
  out->Counter("quota_rejections_total", "", counters.key_rate_refusals,
               with({{"what", "keys_per_second"}}));
  out->Counter("quota_rejections_total", "", counters.byte_rate_refusals,
               with({{"what", "bytes_per_second"}}));
  const char* const evictions = "tenant_evicted_chunks_total";
  out->Counter(evictions, "Chunks of a tenant that were evicted, and for what",
               counters.g2_evictions, with({{"tier", "g2"}, {"reason", "own"}}));
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
  for (const DeviceState state :
       {DeviceState::kOk, DeviceState::kDegraded, DeviceState::kReadOnly, DeviceState::kOffline}) {
    out->Gauge("device_state_info", "1 for the state that a device is in", device.state == state,
               {{"path", device.path}, {"state", DeviceStateName(state)}});
  }
}

void AddArena(const Arena::Stats& stats, Families* out) {
  out->Gauge("arena_prefaulted_bytes", "Arena bytes whose pages are there", stats.prefaulted_bytes);
  out->Gauge("arena_huge_page_bytes", "Arena bytes backed by huge pages", stats.huge_page_bytes);
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
  out->Counter("io_buffers_total", "Operations by kind of memory", stats.fixed_buffer_ios,
               {{"memory", "registered"}});
  out->Counter("io_buffers_total", "", stats.plain_buffer_ios, {{"memory", "plain"}});
  out->Counter("io_buffered_opens_total", "Files opened without O_DIRECT: it was not to be had",
               stats.buffered_opens);
  out->Gauge("io_in_flight_operations", "Operations in the kernel now", stats.in_flight);
  out->Gauge("io_queued_operations", "Operations waiting in the engine now", stats.queued);
}

}  // namespace

std::vector<MetricFamily> ToMetricFamilies(const MetricsInput& input) {
  Families out;
  const ServerState& state = *input.state;
  out.Gauge("build_info", "1; the version is in the label", 1, {{"version", state.version}});
  const auto uptime = std::chrono::duration<double>(state.clock->Now() - state.started);
  out.Gauge("uptime_seconds", "Time since the start", uptime.count());
  for (const LoopWatch::Lag& loop : state.loops.lags()) {
    out.Gauge("event_loop_lag_seconds", "How long a task waits for a thread, as of the last probe",
              std::chrono::duration<double>(loop.lag).count(), {{"loop", loop.loop}});
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
  out.Gauge("dirty_chunks", "Chunks not yet written back", input.store.dirty_chunks);
  out.Gauge("encryption_buffer_bytes", "Memory that write-backs encrypt into",
            input.store.cipher_buffer_bytes);
  out.Gauge("sessions", "Sessions open now", input.store.sessions.size());
  for (const DeviceSnapshot& device : input.store.devices) AddDevice(device, &out);
  for (const TenantSnapshot& tenant : input.store.tenants) AddTenant(tenant, &out);
  AddArena(input.arena, &out);
  AddIo(input.io, &out);
  return out.Take();
}

std::string MetricsText(const MetricsInput& input) {
  return prometheus::TextSerializer().Serialize(ToMetricFamilies(input));
}

}  // namespace kvkeep
