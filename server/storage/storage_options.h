// StorageOptions: what the daemon's tiers and their store are made of.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tiers/host/arena.h"
#include "tiers/io/io_engine.h"
#include "tiers/nvme/nvme_device.h"
#include "tiers/remote/fleet_source.h"
#include "tiers/remote/g4.h"
#include "tiers/store/types.h"

namespace kvkeep {

// The files with the keys of G4Secrets.
struct FleetKeyFiles {
  std::string fleet;
  std::vector<std::string> previous;
  std::map<std::string, std::string> tenants;  // by name
};

struct StorageOptions {
  ArenaOptions arena;
  IoEngineOptions io;
  std::vector<NvmeDeviceOptions> devices;
  StoreOptions store;
  int copy_threads = 0;  // 0: as many as cores, at most 8
  std::string state_dir;
  std::optional<G4Options> g4;  // none: the node shares no storage
  // None: the node has no peers. Which they are: StorageStack::fleet().
  std::optional<FleetSourceOptions> peers;
  std::string fleet_name;       // with peers
  FleetKeyFiles fleet_keys;     // with g4 or peers
  std::string master_key_file;  // encryption at rest; empty: off
  std::vector<std::string> previous_master_key_files;
};

}  // namespace kvkeep
