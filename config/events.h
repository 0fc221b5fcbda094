// EventsConfig: the events for routers and their endpoints. Plain values, part of Config.
#pragma once

#include <cstdint>
#include <string>

#include "tiers/base/units.h"

namespace kvkeep {

enum class EventFormChoice { kVllm, kSglang };

// Over ZeroMQ.
struct EventsConfig {
  std::string zmq_endpoint;         // tcp://host:port or ipc:///path; empty: off
  std::string zmq_replay_endpoint;  // likewise
  EventFormChoice form = EventFormChoice::kVllm;
  bool zmq_insecure = false;
  uint64_t queued_bytes = 256 * kMiB;  // of all subscribers together

  bool operator==(const EventsConfig&) const = default;
};

}  // namespace kvkeep
