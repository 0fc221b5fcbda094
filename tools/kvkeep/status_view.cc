#include "tools/kvkeep/status_view.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <map>

#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

std::string StateName(v1::ServingState state) {
  switch (state) {
    case v1::SERVING_STATE_RECOVERING:
      return "recovering";
    case v1::SERVING_STATE_SERVING:
      return "serving";
    case v1::SERVING_STATE_DRAINING:
      return "draining";
    default:
      return "unknown";
  }
}

std::string G4StateWords(v1::G4State state) {
  switch (state) {
    case v1::G4_STATE_WELL:
      return "well";
    case v1::G4_STATE_AWAY:
      return "away";
    case v1::G4_STATE_MISCONFIGURED:
      return "misconfigured";
    default:
      return "unknown";
  }
}

Json G4Json(const v1::G4Status& g4) {
  return {{"where", g4.where()},
          {"state", G4StateWords(g4.state())},
          {"takes_puts", g4.takes_puts()},
          {"error_code", g4.error_code()},
          {"error_message", g4.error_message()},
          {"what_to_do", g4.what_to_do()},
          {"retry_in_ms", g4.retry_in_ms()},
          {"recalled_chunks", g4.recalled_chunks()},
          {"recalled_bytes", g4.recalled_bytes()},
          {"written_chunks", g4.written_chunks()},
          {"written_bytes", g4.written_bytes()},
          {"failed_recalls", g4.failed_recalls()},
          {"failed_writes", g4.failed_writes()},
          {"dropped_writes", g4.dropped_writes()},
          {"bad_objects", g4.bad_objects()},
          {"searches", g4.searches()},
          {"probes", g4.probes()}};
}

std::string G4Text(const v1::G4Status& g4) {
  const bool well = g4.state() == v1::G4_STATE_WELL;
  std::string text = absl::StrCat("G4: ", g4.where(), ", ", G4StateText(g4));
  if (!well && g4.retry_in_ms() > 0) {
    absl::StrAppend(&text, ", next request in ", (g4.retry_in_ms() + 999) / 1000, " s");
  }
  absl::StrAppend(&text, "; ", g4.recalled_chunks(), " hits, ", FormatBytes(g4.recalled_bytes()),
                  "; ", g4.written_chunks(), " written, ", FormatBytes(g4.written_bytes()), "\n");
  if (well && g4.takes_puts()) return text;
  const bool both = !g4.error_code().empty() && !g4.error_message().empty();
  const std::string why =
      absl::StrCat(g4.error_code(), both ? ": " : "", g4.error_message());
  if (!why.empty()) absl::StrAppend(&text, "    ", why, "\n");
  if (!g4.what_to_do().empty()) absl::StrAppend(&text, "    to do: ", g4.what_to_do(), "\n");
  return text;
}

// Tells how many peers answer, and names those that do not.
std::string PeersText(const v1::StatusResponse& status) {
  int up = 0;
  std::string down;
  for (const auto& [name, state] : std::map(status.peers().begin(), status.peers().end())) {
    if (state == "up") {
      ++up;
    } else {
      absl::StrAppend(&down, "    ", name, ": ", state, "\n");
    }
  }
  return absl::StrCat("peers: ", up, " of ", status.peers_size(), " answer\n", down);
}

Json TierJson(const v1::TierStatus& tier) {
  return {{"capacity_bytes", tier.capacity_bytes()},
          {"to_come_bytes", tier.to_come_bytes()},
          {"used_bytes", tier.used_bytes()},
          {"chunks", tier.chunks()},
          {"leased_bytes", tier.leased_bytes()},
          {"reserved_bytes", tier.reserved_bytes()},
          {"dirty_bytes", tier.dirty_bytes()},
          {"unbacked_chunks", tier.unbacked_chunks()},
          {"unbacked_bytes", tier.unbacked_bytes()},
          {"waiting_chunks", tier.waiting_chunks()},
          {"waiting_bytes", tier.waiting_bytes()},
          {"hits", tier.hits()},
          {"mean_extents_per_chunk", tier.mean_extents_per_chunk()}};
}

Json DevicesJson(const v1::StatusResponse& status) {
  Json devices = Json::array();
  for (const auto& device : status.devices()) {
    devices.push_back({{"path", device.path()},
                       {"state", device.state()},
                       {"message", device.message()},
                       {"capacity_bytes", device.capacity_bytes()},
                       {"used_bytes", device.used_bytes()},
                       {"directory_bytes", device.directory_bytes()},
                       {"built_bytes", device.built_bytes()},
                       {"chunks", device.chunks()},
                       {"reads", device.reads()},
                       {"read_ns", device.read_ns()},
                       {"writes", device.writes()},
                       {"write_ns", device.write_ns()}});
  }
  return devices;
}

std::vector<std::string> TierRow(const char* name, const v1::TierStatus& tier) {
  return {name,
          FormatBytes(tier.used_bytes()),
          FormatBytes(tier.capacity_bytes()),
          absl::StrCat(tier.chunks()),
          FormatBytes(tier.leased_bytes()),
          FormatBytes(tier.dirty_bytes()),
          absl::StrCat(tier.hits()),
          absl::StrFormat("%.2f", tier.mean_extents_per_chunk())};
}

}  // namespace

std::string G4StateText(const v1::G4Status& g4) {
  const bool well = g4.state() == v1::G4_STATE_WELL;
  return well && !g4.takes_puts() ? "takes no writes" : G4StateWords(g4.state());
}

Json SessionsJson(const v1::StatusResponse& status) {
  Json sessions = Json::array();
  for (const auto& session : status.sessions()) {
    sessions.push_back({{"client_name", session.client_name()},
                        {"peer", session.peer()},
                        {"leases", session.leases()},
                        {"leased_bytes", session.leased_bytes()},
                        {"reserved_bytes", session.reserved_bytes()},
                        {"age_ms", session.age_ms()}});
  }
  return sessions;
}

Json TenantsJson(const v1::StatusResponse& status) {
  Json tenants = Json::array();
  for (const auto& tenant : status.tenants()) {
    tenants.push_back({{"name", tenant.name()},
                       {"g2_capacity_bytes", tenant.g2_capacity_bytes()},
                       {"g2_used_bytes", tenant.g2_used_bytes()},
                       {"g2_leased_bytes", tenant.g2_leased_bytes()},
                       {"g3_used_bytes", tenant.g3_used_bytes()},
                       {"g3_quota_bytes", tenant.g3_quota_bytes()},
                       {"g3_share_bytes", tenant.g3_share_bytes()},
                       {"chunks", tenant.chunks()},
                       {"sessions", tenant.sessions()},
                       {"rejected_puts", tenant.rejected_puts()},
                       {"g2_evictions", tenant.g2_evictions()},
                       {"g3_evictions", tenant.g3_evictions()},
                       {"g3_quota_evictions", tenant.g3_quota_evictions()},
                       {"g3_pushed_out", tenant.g3_pushed_out()},
                       {"g3_quota_refusals", tenant.g3_quota_refusals()},
                       {"forgotten_chunks", tenant.forgotten_chunks()},
                       {"keys_per_second", tenant.keys_per_second()},
                       {"bytes_per_second", tenant.bytes_per_second()},
                       {"key_rate_refusals", tenant.key_rate_refusals()},
                       {"byte_rate_refusals", tenant.byte_rate_refusals()},
                       {"local_message_bytes", tenant.local_message_bytes()},
                       {"local_message_limit_bytes", tenant.local_message_limit_bytes()}});
  }
  return tenants;
}

Json StatusJson(const v1::StatusResponse& status) {
  Json counters = Json::object();
  const std::map<std::string, uint64_t> sorted(status.counters().begin(), status.counters().end());
  for (const auto& [name, value] : sorted) counters[name] = value;
  Json json = {{"version", status.version()},
               {"incarnation", absl::StrFormat("%016x", status.incarnation())},
               {"state", StateName(status.state())},
               {"pid", status.pid()},
               {"uptime_ms", status.uptime_ms()},
               {"arena", status.arena()},
               {"io_engine", status.io_engine()},
               {"gpu", status.gpu()},
               {"g2", TierJson(status.g2())},
               {"g3", TierJson(status.g3())},
               {"devices", DevicesJson(status)},
               {"sessions", SessionsJson(status)},
               {"tenants", TenantsJson(status)},
               {"scrub",
                {{"asked_for", status.scrub().asked_for()},
                 {"looked_at", status.scrub().looked_at()},
                 {"of", status.scrub().of()}}},
               {"counters", counters}};
  if (status.has_g4()) json["g4"] = G4Json(status.g4());
  for (const auto& [name, state] : status.peers()) json["peers"][name] = state;
  return json;
}

std::string DevicesTable(const v1::StatusResponse& status) {
  std::vector<std::vector<std::string>> rows = {
      {"DEVICE", "STATE", "USED", "DIRECTORY", "CAPACITY", "CHUNKS", "MESSAGE"}};
  for (const auto& device : status.devices()) {
    rows.push_back({device.path(), device.state(), FormatBytes(device.used_bytes()),
                    FormatBytes(device.directory_bytes()), FormatBytes(device.capacity_bytes()),
                    absl::StrCat(device.chunks()), device.message()});
  }
  return FormatTable(rows);
}

std::string TenantsTable(const v1::StatusResponse& status) {
  std::vector<std::vector<std::string>> rows = {{"TENANT", "G2", "OF", "G3", "QUOTA", "SHARE",
                                                 "CHUNKS", "SESSIONS", "EVICTED", "REJECTED",
                                                 "OVER RATE"}};
  for (const auto& tenant : status.tenants()) {
    rows.push_back({tenant.name(), FormatBytes(tenant.g2_used_bytes()),
                    FormatBytes(tenant.g2_capacity_bytes()), FormatBytes(tenant.g3_used_bytes()),
                    tenant.g3_quota_bytes() == 0 ? "-" : FormatBytes(tenant.g3_quota_bytes()),
                    FormatBytes(tenant.g3_share_bytes()), absl::StrCat(tenant.chunks()),
                    absl::StrCat(tenant.sessions()),
                    absl::StrCat(tenant.g2_evictions() + tenant.g3_evictions()),
                    absl::StrCat(tenant.rejected_puts()),
                    absl::StrCat(tenant.key_rate_refusals() + tenant.byte_rate_refusals())});
  }
  return FormatTable(rows);
}

std::string SessionsTable(const std::vector<v1::SessionStatus>& sessions) {
  std::vector<std::vector<std::string>> rows = {{"SESSION", "PEER", "LEASES", "LEASED", "AGE"}};
  for (const v1::SessionStatus& session : sessions) {
    rows.push_back({session.client_name(), session.peer(), absl::StrCat(session.leases()),
                    FormatBytes(session.leased_bytes()),
                    absl::StrCat(session.age_ms() / 1000, " s")});
  }
  return FormatTable(rows);
}

std::vector<v1::SessionStatus> SessionsOf(const v1::StatusResponse& status) {
  return {status.sessions().begin(), status.sessions().end()};
}

uint64_t CounterOf(const v1::StatusResponse& status, const char* name) {
  const auto found = status.counters().find(name);
  return found == status.counters().end() ? 0 : found->second;
}

std::string StatusText(const v1::StatusResponse& status) {
  std::string text =
      absl::StrFormat("kvkeepd %s, pid %d, %s, up %d s\n", status.version(), status.pid(),
                      StateName(status.state()), status.uptime_ms() / 1000);
  if (!status.arena().empty()) absl::StrAppend(&text, "arena: ", status.arena(), "\n");
  if (!status.io_engine().empty()) absl::StrAppend(&text, "I/O: ", status.io_engine(), "\n");
  if (!status.gpu().empty()) absl::StrAppend(&text, "GPU: ", status.gpu(), "\n");
  if (const uint64_t lost = CounterOf(status, "lost_sockets"); lost > 0) {
    absl::StrAppend(&text, lost, " of its Unix sockets cannot be reached by new ",
                    "clients: its log says which, why, and what to do\n");
  }
  if (const uint64_t lines = CounterOf(status, "dropped_log_lines"); lines > 0) {
    absl::StrAppend(&text, lines, " lines of its log were dropped: stderr was blocked\n");
  }
  absl::StrAppend(
      &text, "\n",
      FormatTable({{"TIER", "USED", "CAPACITY", "CHUNKS", "LEASED", "DIRTY", "HITS", "EXTENTS"},
                   TierRow("G2", status.g2()),
                   TierRow("G3", status.g3())}));
  if (const uint64_t to_come = status.g2().to_come_bytes(); to_come > 0) {
    absl::StrAppend(&text, "G2 has ", FormatBytes(status.g2().capacity_bytes()), " of ",
                    FormatBytes(status.g2().capacity_bytes() + to_come),
                    ": the rest follows when clients of an earlier daemon release it\n");
  }
  if (status.g2().unbacked_chunks() > 0) {
    absl::StrAppend(&text, "in G2 alone: ", status.g2().unbacked_chunks(), " chunks, ",
                    FormatBytes(status.g2().unbacked_bytes()), ", of which ",
                    FormatBytes(status.g2().waiting_bytes()), " wait to be written to G3\n");
  }
  if (status.has_g4()) absl::StrAppend(&text, G4Text(status.g4()));
  if (status.peers_size() > 0) absl::StrAppend(&text, PeersText(status));
  if (status.devices_size() > 0) absl::StrAppend(&text, "\n", DevicesTable(status));
  if (status.tenants_size() > 1) absl::StrAppend(&text, "\n", TenantsTable(status));
  if (status.sessions_size() > 0) absl::StrAppend(&text, "\n", SessionsTable(SessionsOf(status)));
  return text;
}

}  // namespace kvkeep::tools
