// G4Config, RemoteConfig, FleetConfig: the fourth tier, beyond the node; limits of requests to it;
// and what the nodes that share it have in common. Plain values, part of Config.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tiers/base/units.h"

namespace kvkeep {

struct G4Config {
  std::string url;               // http(s)://HOST[:PORT]/BUCKET or file:///DIRECTORY; empty: off
  std::string prefix;            // before the names of all objects
  std::string region = "us-east-1";
  bool virtual_host = false;     // the bucket in the host's name
  std::string credentials = "auto";  // source of its keys
  std::string credentials_file;
  std::string credential_process;  // a command
  std::string ca_file;           // empty: the system's
  std::string proxy;             // empty: none
  uint64_t connections = 64;
  uint64_t write_bytes_per_second = 0;  // 0: nothing is written there
  std::string admission = "second_use";
  std::chrono::milliseconds lifetime{0};  // 0: objects do not expire
  uint64_t epoch = 0;                     // another value makes G4 empty
  bool operator==(const G4Config&) const = default;
};

// Limits of requests beyond the node.
struct RemoteConfig {
  uint64_t probes_per_second = 200;
  bool operator==(const RemoteConfig&) const = default;
};

// The nodes that share what lies beyond them.
struct FleetConfig {
  std::string name;      // with another one nothing is shared
  std::string key_file;  // the same on each of them
  std::vector<std::string> previous_key_files;  // earlier ones, asked in this order
  std::string node;                             // this node's name there; empty: it has no peers
  std::vector<std::string> peers;               // "NAME=HOST:PORT"
  std::string peers_file;                       // likewise, one a line; empty: none
  std::string ca_file;                          // of the nodes' certificates
  uint64_t serve_bytes_per_second = 1 * kGiB;   // to peers; 0: nothing
  bool operator==(const FleetConfig&) const = default;
};

}  // namespace kvkeep
