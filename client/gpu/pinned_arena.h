// PinnedArena: this process's read-only mapping of the daemon's arena, registered with the GPU's
// driver, so that the worker itself copies chunks to its GPU at the speed of the bus.
//
//   auto pinned = GpuPath(client.get()).PinArena({.device = 0});  // at start; in the background
//   auto acquired = client->Acquire(ns, keys);
//   for each view: wait for its pieces, cuMemcpyHtoDAsync from its runs on a stream of yours;
//   synchronise the stream, then ask acquired.valid(), and only then use the bytes.
//
// Only speed depends on it: memory that is not registered, or not yet, is copied more slowly. If
// the daemon came back with another arena, or after this process has let go of its mapping, none of
// it is registered: Covers says so; call PinArena again. Puts need no pin of the arena: register
// memory of your own (Client::RegisterMemory) that you have pinned.
//
// Move-only. It does not keep the mapping: when the session and the last lease on the memory are
// gone, all is unregistered before it is unmapped. Copies run under a lease, so none is under way
// then. End all copies before destroying this, which also unregisters all. Does nothing in a child
// of fork(). The const methods are thread-safe.
#pragma once

#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "client/values/types.h"

namespace kvkeep::client {

struct ArenaMap;

struct PinArenaOptions {
  int device = 0;                        // the GPU's ordinal in this process
  std::string library = "libcuda.so.1";  // a name that the loader looks up, or a path

  absl::Status Validate() const;
};

class [[nodiscard]] PinnedArena {
 public:
  struct Stats {
    uint64_t pinned_bytes = 0;
    uint64_t refused_bytes = 0;
    absl::Status first_refusal;  // OK: none
    bool finished = false;       // every segment was tried
  };

  PinnedArena() = default;
  ~PinnedArena();
  PinnedArena(PinnedArena&&) noexcept = default;
  PinnedArena& operator=(PinnedArena&& other) noexcept;

  Stats stats() const;
  // Returns whether all of `run` is registered now.
  bool Covers(std::span<const std::byte> run) const;
  // Waits until every segment was tried. Returns DEADLINE_EXCEEDED, FAILED_PRECONDITION once all of
  // it is unregistered, or the first refusal.
  absl::Status Await(Deadline timeout) const;

  // The driver's part.
  class Pin {
   public:
    virtual ~Pin() = default;  // unregisters
    virtual Stats stats() const = 0;
    virtual bool Covers(std::span<const std::byte> run) const = 0;
    virtual bool AwaitFinished(Deadline timeout) const = 0;
  };

  // For the transport: registers all of `arena`.
  static absl::StatusOr<PinnedArena> Make(std::shared_ptr<const ArenaMap> arena,
                                          const PinArenaOptions& options);

 private:
  class State;
  void Release();

  std::shared_ptr<State> state_;  // null: default constructed, or moved from
};

}  // namespace kvkeep::client
