// Transfer: one transfer request of NIXL's: runs of memory, written to or read from whole objects.
//
// An object is a kvkeep chunk, so it is written and read as a whole. Several descriptors may make
// up one object: the first has offset 0, and each next one begins where the one before it ended.
//
// Guarantees: a status of SUCCESS says that all objects were written or read, each byte of them.
// Post and Check do not wait, and after the deadline Check does not say IN_PROG any more. Once it
// does not, nothing reads or writes the memory.
//
// NIXL owns it, and uses it on one thread at a time. `Via` must outlive it.
#pragma once

#include <backend/backend_engine.h>
#include <kvkeep.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "contrib/nixl/registered.h"

namespace kvkeep_nixl {

// What transfers of a backend have in common.
struct Via {
  kvkeep_client* client = nullptr;
  kvkeep_namespace* ns = nullptr;
  uint32_t part = 0;
  uint32_t deadline_ms = 0;
  bool replace = true;
  std::atomic<bool> failing{false};  // the log has said so since the last transfer that worked
};

class Transfer : public nixlBackendReqH {
 public:
  Transfer(Via* via, nixl_xfer_op_t operation) : via_(*via), writes_(operation == NIXL_WRITE) {}
  // Waits for calls under way, at most until the deadline.
  ~Transfer() override;

  // Sets what it moves. Call once. INVALID_PARAM: the descriptors are no whole objects.
  nixl_status_t Take(const nixl_meta_dlist_t& memory, const nixl_meta_dlist_t& objects);
  // Starts it; again once it has ended. Returns IN_PROG, or the error with which it has ended.
  nixl_status_t Post();
  // Takes the next step, if the call under way has ended. Returns IN_PROG, or how it has ended.
  nixl_status_t Check();

 private:
  using Time = std::chrono::steady_clock::time_point;

  enum class State {
    kIdle,
    kGetting,
    kPutting,
    kDeleting,      // objects that are there under names
    kPuttingAgain,  // those objects
    kHeld,          // has ended; the daemon may still read the memory
  };

  struct Chunk {
    const Object* object = nullptr;
    uint64_t bytes = 0;
    std::vector<kvkeep_buffer> runs;
  };

  uint32_t LeftMs() const;
  kvkeep_keys Keys() const;
  bool MemoryInUse() const;
  void Get();
  void Put(const std::vector<uint32_t>& which);
  void Delete();
  // Notes that a call is under way, or ends the transfer if it was refused.
  void Started(State state, int refused, const kvkeep_error& error);
  // Looks at the call that has ended, and starts the next one or ends the transfer.
  void Advance(const kvkeep_completion& completion);
  nixl_status_t Got(std::string* why) const;
  nixl_status_t WasPut(std::string* why);
  // `why`: for the log, which is told of the first failure after a success; "": it is not told.
  void End(nixl_status_t status, const std::string& why);

  Via& via_;
  const bool writes_;
  std::vector<Chunk> chunks_;
  std::vector<const Memory*> registered_;  // each once

  State state_ = State::kIdle;
  bool closing_ = false;
  nixl_status_t status_ = NIXL_ERR_NOT_POSTED;
  Time deadline_;
  kvkeep_queue* queue_ = nullptr;

  // Arguments of the call under way.
  std::vector<uint32_t> which_;  // chunks_ that it is about
  std::vector<kvkeep_key> keys_;
  std::vector<kvkeep_buffer> destinations_;
  std::vector<uint32_t> run_counts_;
  std::vector<kvkeep_get_outcome> got_;
  std::vector<std::vector<kvkeep_const_buffer>> sources_;
  std::vector<kvkeep_put_chunk> put_;
  std::vector<uint32_t> put_outcomes_;
  kvkeep_count_reply deleted_ = {};
};

}  // namespace kvkeep_nixl
