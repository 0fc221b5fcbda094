// Flow: what a daemon did between two of its statuses, a second. Pure.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "kvkeep/v1/kvkeep.pb.h"
#include "tools/kvkeep/print.h"

namespace kvkeep::tools {

// Mean times of a device's operations; 0: there were none.
struct DeviceFlow {
  double read_seconds = 0, write_seconds = 0;
};

struct Flow {
  double seconds = 0;
  double keys = 0, found_keys = 0;  // that lookups asked for, and that led them
  double lookups = 0, put_chunks = 0, served_chunks = 0;
  double put_bytes = 0, served_bytes = 0;  // payload taken; sent, or leased by the local path
  double from_g3_bytes = 0, to_g3_bytes = 0;
  double g2_evictions = 0, g3_evictions = 0;
  // G4: chunks that came from there, payload read and written, chunks that should have been written
  // but were not.
  double g4_hits = 0, from_g4_bytes = 0, to_g4_bytes = 0, g4_drops = 0;
  std::map<std::string, DeviceFlow> devices;  // by path
};

// All zero where the daemon was started anew between the two, or no time has passed.
Flow FlowBetween(const v1::StatusResponse& before, const v1::StatusResponse& after);

// One line of `stat`, and the head above it: as wide as each other. With columns of G4 where the
// daemon has one.
std::vector<std::string> FlowHead(const v1::StatusResponse& now);
std::vector<std::string> FlowRow(const Flow& flow, const v1::StatusResponse& now);
std::string FlowLine(const std::vector<std::string>& cells);
Json FlowJson(const Flow& flow, const v1::StatusResponse& now);

// The screen of `top`: no line is longer than the screen is wide, and there are less than it has
// rows. The slowest devices and the sessions that hold most are first; of each as many as fit.
std::string TopScreen(const Flow& flow, const v1::StatusResponse& now, const ScreenSize& size,
                      bool color);

}  // namespace kvkeep::tools
