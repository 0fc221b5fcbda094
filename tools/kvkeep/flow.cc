#include "tools/kvkeep/flow.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_replace.h>

#include <algorithm>
#include <cstring>

#include "tools/kvkeep/status_view.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

constexpr size_t kCellColumns = 9;
constexpr char kG4StateHead[] = "       g4-state";  // as wide as "takes-no-writes"

double Share(uint64_t used, uint64_t capacity) {
  return capacity == 0 ? 0 : static_cast<double>(used) / static_cast<double>(capacity);
}

std::string PerSecond(double bytes) {
  return absl::StrCat(FormatBytes(static_cast<uint64_t>(bytes)), "/s");
}

std::string Count(double count) {
  return count < 100'000 ? absl::StrFormat("%.0f", count) : absl::StrFormat("%.0fk", count / 1000);
}

// Returns text without spaces, so that awk can read rows.
std::string Bytes(double bytes) {
  std::string text = FormatBytes(static_cast<uint64_t>(bytes));
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

// A full cache is normal; it is over its capacity only while the capacity shrinks.
Color ColorOf(double share) { return share <= 1 ? Color::kGreen : Color::kYellow; }

constexpr size_t kWide = 132;  // columns from which a tier has one line, however long

// Shows the rates behind the tier on a wide screen, else below it.
std::string TierLines(const char* name, const v1::TierStatus& tier, const std::string& moves,
                      size_t columns, bool color) {
  const bool wide = columns >= kWide;
  const double share = Share(tier.used_bytes(), tier.capacity_bytes());
  return absl::StrFormat("%s %s %6s  %s of %s, %d chunks%s%s, %d hits\n", name,
                         InColor(FormatBar(share, wide ? 32 : 26), ColorOf(share), color),
                         FormatShare(share, 1), FormatBytes(tier.used_bytes()),
                         FormatBytes(tier.capacity_bytes()), tier.chunks(), wide ? ", " : "\n   ",
                         moves, tier.hits());
}

// Shows G4, which has no size: its state and rates. Empty without G4.
std::string G4Line(const Flow& flow, const v1::StatusResponse& now, bool color) {
  if (!now.has_g4()) return "";
  const std::string state = G4StateText(now.g4());
  return absl::StrCat("G4 ", InColor(state, state == "well" ? Color::kGreen : Color::kRed, color),
                      ", in ", PerSecond(flow.to_g4_bytes), ", out ",
                      PerSecond(flow.from_g4_bytes), ", ", Count(flow.g4_drops), " dropped/s, ",
                      Count(flow.g4_hits), " hits/s\n");
}

// Returns text like "1.23 ms", or "-".
std::string Took(double seconds) {
  return seconds > 0 ? absl::StrFormat("%.2f ms", seconds * 1000) : "-";
}

// Lists the slowest devices first; a device's error is last in its line, as it may be long.
std::string Devices(const Flow& flow, const v1::StatusResponse& now, size_t most, bool color) {
  std::vector<std::pair<DeviceFlow, const v1::DeviceStatus*>> devices;
  for (const v1::DeviceStatus& device : now.devices()) {
    const auto known = flow.devices.find(device.path());
    devices.emplace_back(known == flow.devices.end() ? DeviceFlow{} : known->second, &device);
  }
  std::stable_sort(devices.begin(), devices.end(), [](const auto& a, const auto& b) {
    return std::max(a.first.read_seconds, a.first.write_seconds) >
           std::max(b.first.read_seconds, b.first.write_seconds);
  });
  std::string text;
  for (size_t i = 0; i < std::min(most, devices.size()); ++i) {
    const auto& [took, device] = devices[i];
    const bool ok = device->state() == "ok";
    const double share = Share(device->used_bytes(), device->capacity_bytes());
    std::string state = device->state();
    state.resize(std::max<size_t>(9, state.size()), ' ');
    absl::StrAppendFormat(
        &text, "   %s %s  read %-9s write %-9s %s%s\n", FormatBar(share, 12),
        InColor(state, ok ? Color::kGreen : Color::kRed, color), Took(took.read_seconds),
        Took(took.write_seconds), Printable(device->path()),
        device->message().empty() ? "" : absl::StrCat(": ", Printable(device->message())));
  }
  if (devices.size() > most) absl::StrAppend(&text, "   and ", devices.size() - most, " more\n");
  return text;
}

// A table of the sessions, the largest leases first, in at most `lines` lines.
std::string Sessions(const v1::StatusResponse& now, size_t lines) {
  constexpr size_t kHeads = 2;
  std::vector<v1::SessionStatus> sessions = SessionsOf(now);
  std::stable_sort(sessions.begin(), sessions.end(),
                   [](const v1::SessionStatus& a, const v1::SessionStatus& b) {
                     return a.leased_bytes() > b.leased_bytes();
                   });
  const std::string count =
      absl::StrCat(sessions.size(), sessions.size() == 1 ? " session\n" : " sessions\n");
  if (sessions.empty() || lines <= kHeads) return count;
  if (sessions.size() > lines - kHeads) sessions.resize(lines - kHeads);
  return absl::StrCat(count, SessionsTable(sessions));
}

size_t LinesOf(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::string FirstLines(const std::string& text, size_t lines) {
  size_t end = 0;
  for (size_t i = 0; i < lines; ++i) {
    const size_t at = text.find('\n', end);
    if (at == std::string::npos) return text;
    end = at + 1;
  }
  return text.substr(0, end);
}

DeviceFlow DeviceFlowBetween(const v1::DeviceStatus& before, const v1::DeviceStatus& after) {
  const auto mean = [](uint64_t then, uint64_t now, uint64_t ns_then, uint64_t ns_now) {
    if (now <= then || ns_now <= ns_then) return 0.0;
    return static_cast<double>(ns_now - ns_then) / static_cast<double>(now - then) / 1e9;
  };
  return {
      .read_seconds = mean(before.reads(), after.reads(), before.read_ns(), after.read_ns()),
      .write_seconds = mean(before.writes(), after.writes(), before.write_ns(), after.write_ns())};
}

void FillG4Flow(const v1::G4Status& before, const v1::G4Status& after, Flow* flow) {
  const auto rate = [flow](uint64_t then, uint64_t now) {
    return static_cast<double>(std::max(then, now) - then) / flow->seconds;
  };
  flow->g4_hits = rate(before.recalled_chunks(), after.recalled_chunks());
  flow->from_g4_bytes = rate(before.recalled_bytes(), after.recalled_bytes());
  flow->to_g4_bytes = rate(before.written_bytes(), after.written_bytes());
  flow->g4_drops = rate(before.dropped_writes(), after.dropped_writes());
}

}  // namespace

Flow FlowBetween(const v1::StatusResponse& before, const v1::StatusResponse& after) {
  Flow flow;
  if (before.incarnation() != after.incarnation() || after.uptime_ms() <= before.uptime_ms()) {
    return flow;
  }
  flow.seconds = static_cast<double>(after.uptime_ms() - before.uptime_ms()) / 1000;
  const auto rate = [&](const char* name) {
    const uint64_t then = CounterOf(before, name);
    return static_cast<double>(std::max(then, CounterOf(after, name)) - then) / flow.seconds;
  };
  flow.keys = rate("lookup_keys");
  flow.found_keys = rate("lookup_leading_keys");
  flow.lookups = rate("lookups");
  flow.put_chunks = rate("puts_stored");
  flow.served_chunks = rate("read_g2_hits") + rate("read_g3_hits") + rate("g4_read_hits");
  flow.put_bytes = rate("put_bytes");
  flow.served_bytes =
      rate("served_g2_bytes") + rate("served_g3_bytes") + rate("g4_served_bytes");
  flow.from_g3_bytes = rate("promoted_bytes");
  flow.to_g3_bytes = rate("written_back_bytes");
  flow.g2_evictions = rate("g2_evictions");
  flow.g3_evictions = rate("g3_evictions");
  if (before.has_g4() && after.has_g4()) FillG4Flow(before.g4(), after.g4(), &flow);
  for (const v1::DeviceStatus& then : before.devices()) {
    for (const v1::DeviceStatus& now : after.devices()) {
      if (then.path() == now.path()) flow.devices[now.path()] = DeviceFlowBetween(then, now);
    }
  }
  return flow;
}

std::vector<std::string> FlowHead(const v1::StatusResponse& now) {
  std::vector<std::string> head = {"hit",   "lookup/s", "key/s",   "put/s",    "put-B/s",
                                   "get/s", "get-B/s",  "g3-in/s", "g3-out/s", "evict/s",
                                   "g2",    "g3",       "dirty",   "sessions"};
  if (now.has_g4()) {
    head.insert(head.end(), {"g4-in/s", "g4-out/s", "g4-hit/s", "g4-drop/s", kG4StateHead});
  }
  return head;
}

std::vector<std::string> FlowRow(const Flow& flow, const v1::StatusResponse& now) {
  std::vector<std::string> row = {
      FormatShare(flow.found_keys, flow.keys),
      Count(flow.lookups),
      Count(flow.keys),
      Count(flow.put_chunks),
      Bytes(flow.put_bytes),
      Count(flow.served_chunks),
      Bytes(flow.served_bytes),
      Bytes(flow.to_g3_bytes),
      Bytes(flow.from_g3_bytes),
      Count(flow.g2_evictions + flow.g3_evictions),
      FormatShare(Share(now.g2().used_bytes(), now.g2().capacity_bytes()), 1),
      FormatShare(Share(now.g3().used_bytes(), now.g3().capacity_bytes()), 1),
      Bytes(static_cast<double>(now.g2().dirty_bytes())),
      absl::StrCat(now.sessions_size())};
  if (!now.has_g4()) return row;
  std::string state = absl::StrReplaceAll(G4StateText(now.g4()), {{" ", "-"}});
  if (const size_t columns = strlen(kG4StateHead); state.size() < columns) {
    state.insert(0, columns - state.size(), ' ');
  }
  row.insert(row.end(), {Bytes(flow.to_g4_bytes), Bytes(flow.from_g4_bytes), Count(flow.g4_hits),
                         Count(flow.g4_drops), std::move(state)});
  return row;
}

std::string FlowLine(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) {
    const size_t pad = cell.size() < kCellColumns ? kCellColumns - cell.size() : 0;
    absl::StrAppend(&line, line.empty() ? "" : " ", std::string(pad, ' '), cell);
  }
  return line + "\n";
}

Json FlowJson(const Flow& flow, const v1::StatusResponse& now) {
  Json hit_ratio = nullptr;  // of no keys
  if (flow.keys > 0) hit_ratio = flow.found_keys / flow.keys;
  Json json = {{"seconds", flow.seconds},
               {"hit_ratio", hit_ratio},
               {"lookups_per_second", flow.lookups},
               {"lookup_keys_per_second", flow.keys},
               {"put_chunks_per_second", flow.put_chunks},
               {"put_bytes_per_second", flow.put_bytes},
               {"served_chunks_per_second", flow.served_chunks},
               {"served_bytes_per_second", flow.served_bytes},
               {"written_back_bytes_per_second", flow.to_g3_bytes},
               {"promoted_bytes_per_second", flow.from_g3_bytes},
               {"g2_evictions_per_second", flow.g2_evictions},
               {"g3_evictions_per_second", flow.g3_evictions},
               {"g2_hits", now.g2().hits()},
               {"g3_hits", now.g3().hits()},
               {"g2_used_bytes", now.g2().used_bytes()},
               {"g2_capacity_bytes", now.g2().capacity_bytes()},
               {"g3_used_bytes", now.g3().used_bytes()},
               {"g3_capacity_bytes", now.g3().capacity_bytes()},
               {"dirty_bytes", now.g2().dirty_bytes()},
               {"sessions", now.sessions_size()}};
  if (now.has_g4()) {
    json["g4"] = {{"state", G4StateText(now.g4())},
                  {"hits_per_second", flow.g4_hits},
                  {"recalled_bytes_per_second", flow.from_g4_bytes},
                  {"written_bytes_per_second", flow.to_g4_bytes},
                  {"dropped_writes_per_second", flow.g4_drops}};
  }
  return json;
}

std::string TopScreen(const Flow& flow, const v1::StatusResponse& now, const ScreenSize& size,
                      bool color) {
  const std::string who = absl::StrCat("kvkeepd ", Printable(now.version()));
  std::string text =
      absl::StrFormat("%s  pid %d, up %d s, over %.1f s\n\n", InColor(who, Color::kBold, color),
                      now.pid(), now.uptime_ms() / 1000, flow.seconds);
  absl::StrAppend(&text, "hit ratio ", FormatShare(flow.found_keys, flow.keys), " of ",
                  Count(flow.keys), " keys/s in ", Count(flow.lookups), " lookups/s\n", "put ",
                  Count(flow.put_chunks), " chunks/s, ", PerSecond(flow.put_bytes), "   served ",
                  Count(flow.served_chunks), " chunks/s, ", PerSecond(flow.served_bytes), "\n\n");
  absl::StrAppend(&text,
                  TierLines("G2", now.g2(),
                            absl::StrCat(Count(flow.g2_evictions), " evicted/s, ",
                                         FormatBytes(now.g2().dirty_bytes()), " dirty"),
                            size.columns, color),
                  TierLines("G3", now.g3(),
                            absl::StrCat("in ", PerSecond(flow.to_g3_bytes), ", out ",
                                         PerSecond(flow.from_g3_bytes), ", ",
                                         Count(flow.g3_evictions), " evicted/s"),
                            size.columns, color),
                  G4Line(flow, now, color));
  // The last row stays empty, for the cursor, and the shell's output after an interrupt.
  const size_t rows = std::max<size_t>(size.rows, 2) - 1;
  const size_t left = rows - std::min(rows, LinesOf(text));
  absl::StrAppend(&text, Devices(flow, now, std::max<size_t>(1, left / 2), color), "\n");
  text += Sessions(now, rows - std::min(rows, LinesOf(text)));
  return CutLines(FirstLines(text, rows), size.columns);
}

}  // namespace kvkeep::tools
