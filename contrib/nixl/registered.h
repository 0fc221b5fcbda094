// What the backend keeps for each descriptor that a user registers: an Object for OBJ_SEG, a Memory
// for DRAM_SEG. NIXL owns them, between registerMem and deregisterMem.
//
// Constant once made, so any thread may read them.
#pragma once

#include <backend/backend_engine.h>
#include <kvkeep.h>

#include <cstdint>
#include <string>

namespace kvkeep_nixl {

struct Object : nixlBackendMD {
  // `name` must not be empty. 64 hexadecimal digits are the key itself; of all else the key is the
  // SHA-256, as for kvkeep's command line and its Python package.
  explicit Object(const std::string& name);

  kvkeep_key key;
  bool named = false;  // the key is a name's digest
};

struct Memory : nixlBackendMD {
  // Memory that is a memfd or a file of /dev/shm, mapped from its beginning, is registered with the
  // client: puts from it are not copied by this process. All other memory works as well.
  Memory(kvkeep_client* client, uintptr_t address, uint64_t bytes);
  ~Memory() override;

  kvkeep_memory* registered = nullptr;  // NULL: puts are copied
};

}  // namespace kvkeep_nixl
