// IoEngines: the I/O engines of the devices, one for each. A device may block the thread of its
// ring in a submission; with an engine of its own it holds up no other device.
//
// Each engine registers the arena, segment by segment, on its own thread. An engine that is added
// late registers all of the arena too. If the kernel can (SharedBuffers), it pins a segment once
// for all of them. Otherwise it pins the segment for each engine, and counts its locked memory each
// time.
//
// Owns the engines. Thread-safe. Devices must be destroyed before this, and the arena must stay
// mapped until this is.
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
#include "tiers/io/shared_buffers.h"

namespace kvkeep {

class IoEngines {
 public:
  IoEngines() = default;
  IoEngines(const IoEngines&) = delete;
  IoEngines& operator=(const IoEngines&) = delete;

  void Add(std::unique_ptr<IoEngine> engine);
  // Has `executor` pin each segment in `shared` first; then the engines, which were made with it
  // (IoEngineOptions::shared), take the segment over. REQUIRES: before RegisterNext.
  void Share(std::shared_ptr<SharedBuffers> shared, Executor* executor);

  // Has each engine register its next segment, unless it is registering one, or the segment lacks
  // memory (Arena::SegmentIsWhole). `failed` gets the errors; I/O also works on unregistered
  // memory. Returns true if nothing is left to register and nothing is under way. Waits for no
  // engine. REQUIRES: one thread, always the same arena.
  bool RegisterNext(Arena& arena, absl::FunctionRef<void(const absl::Status&)> failed);

  // Returns the sums over all engines.
  IoEngine::Stats stats() const;
  // One line for the log. Engines that describe themselves alike appear once, with their number.
  std::string describe() const;
  // Returns the threads of the engines that have one of their own.
  std::vector<Executor*> loops() const;

 private:
  // Shared with the task that registers; an engine may destroy the task without running it.
  struct Registration {
    absl::Status status;
    std::atomic<bool> done = false;  // then `status` is there
  };
  struct Entry {
    std::unique_ptr<IoEngine> engine;
    size_t segments = 0;  // registered, or failed to
    std::shared_ptr<Registration> under_way;
  };

  static void Register(IoEngine* engine, std::span<std::byte> memory,
                       std::shared_ptr<Registration> registration);

  // Returns false while a segment is being pinned, or one is to be pinned.
  bool PinNext(Arena& arena) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::shared_ptr<SharedBuffers> shared_ ABSL_GUARDED_BY(mu_);  // null: each engine pins for itself
  Executor* pinner_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t pinned_ ABSL_GUARDED_BY(mu_) = 0;  // segments, or failed to be
  std::shared_ptr<Registration> pinning_ ABSL_GUARDED_BY(mu_);
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
