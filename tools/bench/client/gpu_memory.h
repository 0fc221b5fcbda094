// GpuMemory: one client's memory for the paths cuda-ipc and pinned, laid out as an engine's paged
// KV memory: chunks in runs, some adjacent, then a gap.
//
// The GPU has a place for every chunk of a call. The host has as much memory, registered with the
// driver, for plain copies and checks. With cuda-ipc the GPU's memory is registered with the
// daemon. With pinned the client's mapping of the arena, and staging memory for puts, are
// registered with this process's driver. One thread. Memory is given back only when the process
// ends.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/gpu_path.h"
#include "tools/bench/client/case.h"
#include "tools/bench/client/gpu_worker.h"
#include "tools/bench/client/measured.h"
#include "tools/bench/client/shared_pages.h"

namespace kvkeep::bench {

enum class GpuWay {
  kDaemonCopies,  // cuda-ipc: from and to registered GPU memory
  kWorkerCopies,  // pinned: the client, from the arena and to staging memory
};
// Returns the way that --path names; nothing for another path.
std::optional<GpuWay> GpuWayOf(const std::string& path);

// A chunk's layout on the GPU.
struct GpuLayout {
  uint64_t run_bytes = 0;
  uint32_t adjacent = 1;  // runs without a gap between them
};

// A stretch of a chunk without a gap.
struct GpuStretch {
  uint64_t payload_offset = 0;
  uint64_t region_offset = 0;
  uint64_t bytes = 0;
};

class GpuMemory {
 public:
  struct Options {
    GpuWay way = GpuWay::kDaemonCopies;
    uint64_t call_bytes = 0;  // payload of the largest call
    std::string mount_dir;    // of the arena; empty: memfd
  };
  // Returns a refusal by the driver or the daemon unchanged.
  static absl::StatusOr<std::unique_ptr<GpuMemory>> Open(client::Client* client,
                                                         const Options& options);

  GpuWay way() const { return options_.way; }
  const std::string& device() const { return worker_->device(); }
  // GPU memory that was taken when the daemon opened it: the daemon's context, if it had none
  // before. 0 with kWorkerCopies. Includes memory that other processes took at that moment.
  uint64_t daemon_bytes() const { return daemon_bytes_; }

  // Returns the stretches of the chunk at `place` of a call; a call's chunks have one size.
  static std::vector<GpuStretch> Stretches(uint64_t place, uint64_t size, const GpuLayout& layout);
  // Returns the same, run by run, for the daemon. REQUIRES: kDaemonCopies.
  std::vector<client::GpuRun> Runs(uint64_t place, uint64_t size, const GpuLayout& layout) const;

  // Parts of chunks to copy between the GPU and `host`, which holds the payload from `from` on.
  struct Part {
    uint64_t place = 0;
    uint64_t size = 0;  // of the chunk
    GpuLayout layout;
    uint64_t from = 0;          // of the payload
    std::span<std::byte> host;  // only read when it goes to the GPU
  };
  absl::Status Copy(GpuCopyWay way, std::span<const Part> parts);
  // Host memory registered with the driver, for a call's chunks.
  std::span<std::byte> host() const { return host_.memory(); }
  // For puts. REQUIRES: kWorkerCopies.
  std::span<std::byte> staging() const { return staging_.memory(); }

  // The baseline of all figures: copies `bytes` in one piece between host() and the GPU.
  Measured CopyPlain(GpuCopyWay way, uint64_t bytes, double seconds);

 private:
  GpuMemory(Options options, std::unique_ptr<GpuWorker> worker, SharedPages host)
      : options_(std::move(options)), worker_(std::move(worker)), host_(std::move(host)) {}
  absl::Status OpenWay(client::Client* client);

  const Options options_;
  const std::unique_ptr<GpuWorker> worker_;
  const SharedPages host_;
  uint64_t address_ = 0;
  uint64_t bytes_ = 0;
  uint64_t daemon_bytes_ = 0;
  client::GpuRegion region_;       // kDaemonCopies
  client::PinnedArena pinned_;     // kWorkerCopies
  client::StagingBuffer staging_;  // likewise
};

}  // namespace kvkeep::bench
