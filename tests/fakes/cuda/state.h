// State: the whole state of the fake driver in one process. It has one lock and one condition for
// every change, as a fake is read more often than it is run.
//
// A call of the API is: Entry entry(&state, "cuName", needs);
// if (entry.error() != CUDA_SUCCESS) return ...; then work under entry's lock. Bytes are copied by
// streams' threads, without the lock.
#pragma once

#include <cuda.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/cuda/settings.h"
#include "tiers/base/mutex.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::fakecuda {

// Settings change in a file, which wakes no thread: waits look at them this often.
inline constexpr std::chrono::milliseconds kLookAgain(2);
inline constexpr uint64_t kGranularity = 2ull << 20;  // of VMM, and of large allocations' addresses

struct VmmMemory;

// Memory that a device pointer can point into.
struct Range {
  enum class Kind { kAllocated, kImported, kReserved };
  Kind kind = Kind::kAllocated;
  uint64_t base = 0;
  uint64_t bytes = 0;
  int device = 0;
  UniqueFd memory;                 // the memfd; an importer's own descriptor of it
  std::string handle;              // kImported: the handle by which it was opened
  int memory_device = 0;           // kImported: where it was allocated
  uint64_t opens = 0;              // kImported
  bool mapped = false;             // kReserved: by cuMemMap
  bool accessible = false;         // kReserved: by cuMemSetAccess
  std::shared_ptr<VmmMemory> vmm;  // kReserved: the mapped memory
  uint64_t copies = 0;             // under way in it
};

// Physical memory of cuMemCreate.
struct VmmMemory {
  UniqueFd memory;
  uint64_t bytes = 0;
  int device = 0;
  unsigned handle_types = 0;
};

struct Event {
  uint64_t recorded = 0;   // how often cuEventRecord was called
  uint64_t completed = 0;  // the last recording that its stream has reached
};

struct CopyPart {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
};

// An operation of a stream, in order: copies, then (if there is one) `wait`, then `record`.
struct Operation {
  std::vector<CopyPart> parts;
  std::vector<std::shared_ptr<Range>> ranges;  // of the parts, one reference each
  std::shared_ptr<Event> wait, record;
  uint64_t number = 0;  // of the event's recording
};

struct Stream {
  int device = 0;
  std::deque<Operation> queue;
  bool running = false;  // an operation is out of the queue and not done
  bool closing = false;  // ends when the queue is empty
  bool dropped = false;  // its context is gone or broken: queued work is never done
  bool finished = false;
  std::thread thread;
};

// Memory registered with cuMemHostRegister, and the device of its context.
struct HostMemory {
  uint64_t bytes = 0;
  int device = 0;
  bool read_only = false;
};

struct Device {
  uint64_t context_users = 0;  // cuDevicePrimaryCtxRetain's
  uint64_t context_number = 0;
  CUresult broken = CUDA_SUCCESS;
  uint64_t allocated_bytes = 0;
};

struct State {
  Mutex mu;
  CondVar changed;
  bool initialised ABSL_GUARDED_BY(mu) = false;
  std::vector<Device> devices ABSL_GUARDED_BY(mu);
  std::map<uint64_t, std::shared_ptr<Range>> ranges ABSL_GUARDED_BY(mu);  // by base
  // Freed addresses by size: the next allocation of a size gets the last one.
  std::map<uint64_t, std::vector<uint64_t>> free_addresses ABSL_GUARDED_BY(mu);
  std::map<uint64_t, HostMemory> registered ABSL_GUARDED_BY(mu);  // by base
  std::map<uint64_t, std::shared_ptr<VmmMemory>> vmm ABSL_GUARDED_BY(mu);
  uint64_t next_vmm ABSL_GUARDED_BY(mu) = 1;
  std::map<CUevent, std::shared_ptr<Event>> events ABSL_GUARDED_BY(mu);
  std::map<CUstream, std::shared_ptr<Stream>> streams ABSL_GUARDED_BY(mu);
  std::vector<std::shared_ptr<Stream>> ended_streams ABSL_GUARDED_BY(mu);  // to be joined
  // Number of calls of each kind under the current settings.
  std::shared_ptr<const Settings> settings ABSL_GUARDED_BY(mu);
  std::map<std::string, uint64_t> calls ABSL_GUARDED_BY(mu);
};

// Never destroyed: streams' threads may outlive main().
State& TheState();

// Reports undefined behaviour of the real driver, and ends the process if `strict`.
void Violation(const char* what);

// Returns the range that holds all of [address, address + bytes), or null.
std::shared_ptr<Range> FindRange(State* state, uint64_t address, uint64_t bytes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu);

enum class Needs { kNothing, kInit, kContext };

// The beginning of a call: settings, hangs, injected failures, cuInit, the thread's context; and
// the lock, for its lifetime.
class ABSL_SCOPED_LOCKABLE Entry {
 public:
  Entry(State* state, const char* name, Needs needs) ABSL_EXCLUSIVE_LOCK_FUNCTION(state->mu);
  ~Entry() ABSL_UNLOCK_FUNCTION() { state_->mu.Unlock(); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  CUresult error() const { return error_; }
  int device() const { return device_; }  // of the thread's context
  const Settings& settings() const { return *settings_; }

 private:
  CUresult Check(const char* name, Needs needs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);

  State* const state_;
  std::shared_ptr<const Settings> settings_;
  CUresult error_ = CUDA_SUCCESS;
  int device_ = -1;
};

// The calling thread's current context; a number of no live context if it is gone.
struct CurrentContext {
  int device = -1;
  uint64_t number = 0;
};
CurrentContext& ThreadContext();

// Drops the queued operations of a device's streams. Returns when none of them runs.
void DropStreams(State* state, int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu);
// Joins the threads of streams that have ended.
void JoinEnded(State* state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu);

}  // namespace kvkeep::fakecuda
