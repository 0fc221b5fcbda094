// ExpectedState: what a daemon must and must not remember, in a file that the test and its clients
// map. A client's process writes the state of its own keys before and after each call, so the file
// is right whenever the daemon is killed.
//
// A key's versions are numbered. A version's bytes follow from key and version (payload.h). A put
// stores a version. A delete ends it, and so does the next version's put after the version was
// lost.
//
// Threads and processes: fields are atomic, each with one writer, except deleting and readers.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace kvkeep::crash {

inline constexpr size_t kMaxClients = 6;
inline constexpr size_t kMaxKeys = 256;  // of one client

using Version = std::atomic<uint32_t>;  // 0: none

struct KeyState {
  Version attempted;  // the last one whose put has begun
  Version exact;      // the current version, while it is known
  Version kept;       // must survive a kill: it was seen in G3, or is durable
  Version durable;    // must survive a power cut: put durable, and acknowledged
  // Versions up to these are not served any more: in this process of the daemon, and ever.
  Version dead, sure_dead;
  std::atomic<uint32_t> readers;   // number of other clients that read it now
  std::atomic<uint32_t> deleting;  // its owner is about to delete it: no new reader begins
};

// The clients' current task.
enum class Phase : uint32_t {
  kHold,   // no call
  kCheck,  // a daemon was started: every key is read and checked
  kLoad,
  kEnd,
};

using Count = std::atomic<uint64_t>;

struct ClientState {
  std::atomic<uint32_t> turn;  // the last phase that the client reached or finished
  Count puts, durable_puts, gets, hits, lookups, acquires, deletes, cross_reads;
  Count checked, survived;  // keys after a restart; keys among them that had to survive, and did
  Count failed_calls;       // the daemon was gone
  Count slowest_us;
  // Failures; each must stay 0.
  Count wrong, lost, hung;
  std::array<char, 400> first_failure;
};

struct Shared {
  std::atomic<uint32_t> turn;  // incremented with every change of the phase
  std::atomic<Phase> phase;
  std::atomic<bool> keeps;      // G3 evicts nothing: kept versions must be there
  std::atomic<bool> power_cut;  // before this check
  std::atomic<bool> disk_gone;  // now: a miss proves nothing
  std::atomic<bool> tears;  // power is cut in this run: chunks that are not durable may be damaged
  std::array<ClientState, kMaxClients> clients;
  std::array<std::array<KeyState, kMaxKeys>, kMaxClients> keys;
};

// The mapping. The test creates it, clients open it.
class ExpectedState {
 public:
  // Aborts if the file cannot be opened, as there is no test without it.
  static ExpectedState Make(const std::string& path) { return ExpectedState(path, true); }
  static ExpectedState Open(const std::string& path) { return ExpectedState(path, false); }
  ~ExpectedState();
  ExpectedState(const ExpectedState&) = delete;

  Shared* operator->() const { return shared_; }
  Shared& operator*() const { return *shared_; }

 private:
  ExpectedState(const std::string& path, bool make);
  Shared* shared_ = nullptr;
};

}  // namespace kvkeep::crash
