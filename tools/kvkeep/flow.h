// Flow: a daemon's rates a second between two of its statuses. Pure.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "kvkeep/v1/kvkeep.pb.h"
#include "tools/kvkeep/print.h"

namespace kvkeep::tools {

// Mean times of a device's operations; 0: it had none.
struct DeviceFlow {
  double read_seconds = 0, write_seconds = 0;
};

struct Flow {
  double seconds = 0;
  double keys = 0, found_keys = 0;  // keys of lookups, and the leading ones that were found
  double lookups = 0, put_chunks = 0, served_chunks = 0;
  double put_bytes = 0, served_bytes = 0;  // payload taken; sent, or leased by the local path
  double from_g3_bytes = 0, to_g3_bytes = 0;
  double g2_evictions = 0, g3_evictions = 0;
  // G4: recalled chunks, payload read and written, and chunks whose write was dropped.
  double g4_hits = 0, from_g4_bytes = 0, to_g4_bytes = 0, g4_drops = 0;
  std::map<std::string, DeviceFlow> devices;  // by path
};

// Returns all zeros if the daemon restarted between the two, or no time has passed.
Flow FlowBetween(const v1::StatusResponse& before, const v1::StatusResponse& after);

// Returns a line of `stat`, or the head above it, with equal widths. With columns of G4 if the
// daemon has one.
std::vector<std::string> FlowHead(const v1::StatusResponse& now);
std::vector<std::string> FlowRow(const Flow& flow, const v1::StatusResponse& now);
std::string FlowLine(const std::vector<std::string>& cells);
Json FlowJson(const Flow& flow, const v1::StatusResponse& now);

// Returns the screen of `top`: no line is longer than the screen is wide, and there are fewer lines
// than it has rows. The slowest devices and the sessions that hold most are first, as many as fit.
std::string TopScreen(const Flow& flow, const v1::StatusResponse& now, const ScreenSize& size,
                      bool color);

}  // namespace kvkeep::tools
