// EventsConfig: what routers are told, and where. Plain values, part of Config.
#pragma once

#include <string>

namespace kvkeep {

enum class EventFormChoice { kVllm, kSglang };

// Over ZeroMQ.
struct EventsConfig {
  std::string zmq_endpoint;         // tcp://host:port or ipc:///path; empty: off
  std::string zmq_replay_endpoint;  // likewise
  EventFormChoice form = EventFormChoice::kVllm;
  bool zmq_insecure = false;

  bool operator==(const EventsConfig&) const = default;
};

}  // namespace kvkeep
