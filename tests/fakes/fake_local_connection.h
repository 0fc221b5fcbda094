// One connection of the fake daemon. Internal to fake_local_*.cc.
#pragma once

#include <sys/mman.h>

#include <map>
#include <utility>
#include <vector>

#include "tests/fakes/fake_local_daemon.h"

namespace kvkeep::fakes {

struct FakeLocalDaemon::Connection {
  UniqueFd socket, events;
  UniqueFd peer_events;  // the client's end, until it is sent
  Mutex mu;              // one reply at a time
  std::vector<std::pair<local::MessageWriter, UniqueFd>> held ABSL_GUARDED_BY(mu);
  bool over ABSL_GUARDED_BY(mu) = false;
  UniqueFd staging;
  std::byte* staging_memory = nullptr;
  uint64_t staging_bytes = 0;
  std::map<uint32_t, UniqueFd> regions;
  uint32_t next_region = 1;

  ~Connection() {
    if (staging_memory != nullptr) munmap(staging_memory, staging_bytes);
  }
};

}  // namespace kvkeep::fakes
