// IoEngines: the I/O engines of the devices, one for each. A device may block the thread of its
// ring, in a submission; that holds up no other device.
//
// Each engine registers the arena for itself, segment by segment, on its own thread. An engine that
// is added late registers all of it too. The kernel counts the locked memory of each ring anew.
//
// Owns the engines. Thread-safe. A device is destroyed before this. The arena stays mapped as long
// as this lives.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/host/arena.h"
#include "tiers/io/io_engine.h"

namespace kvkeep {

class IoEngines {
 public:
  IoEngines() = default;
  IoEngines(const IoEngines&) = delete;
  IoEngines& operator=(const IoEngines&) = delete;

  void Add(std::unique_ptr<IoEngine> engine);

  // Has each engine register its next segment, unless it is at one, or the segment's memory is to
  // come: that is nothing to be registered yet. `failed` is told what was not
  // registered: I/O on that works all the same. Returns whether nothing is left to be registered,
  // or under way. Waits for no engine. REQUIRES: one thread, always the same arena.
  bool RegisterNext(Arena& arena, absl::FunctionRef<void(const absl::Status&)> failed);

  // Of all engines together.
  IoEngine::Stats stats() const;
  // One line for the log: engines that say the same are said once, with how many they are.
  std::string describe() const;
  // The engines' own threads, of those that have one.
  std::vector<Executor*> loops() const;

 private:
  // Shared with the task that registers, which the engine may destroy unrun.
  struct Registration {
    absl::Status status;
    std::atomic<bool> done = false;  // then `status` is there
  };
  struct Entry {
    std::unique_ptr<IoEngine> engine;
    size_t segments = 0;  // registered, or tried
    std::shared_ptr<Registration> under_way;
  };

  static void Register(IoEngine* engine, std::span<std::byte> memory,
                       std::shared_ptr<Registration> registration);

  mutable Mutex mu_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
