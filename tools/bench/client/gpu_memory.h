// GpuMemory: one client's memory for the paths cuda-ipc and pinned, laid out as an engine's paged
// KV memory: chunks in runs, some adjacent, then a gap.
//
// On the GPU there is a place for every chunk of a call. On the host there is as much, known to the
// driver: what plain copies go between, and what checks read into. By cuda-ipc the daemon knows the
// GPU's memory; by pinned the client's mapping of the arena, and staging memory for puts, are known
// to the driver here. One thread. Ends with the process: nothing is given back before.
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
// Returns the way that --path names; nothing: another path.
std::optional<GpuWay> GpuWayOf(const std::string& path);

// How a chunk lies on the GPU.
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
  // A refusal by the driver or the daemon is returned as it was said.
  static absl::StatusOr<std::unique_ptr<GpuMemory>> Open(client::Client* client,
                                                         const Options& options);

  GpuWay way() const { return options_.way; }
  const std::string& device() const { return worker_->device(); }
  // The GPU's memory that went when the daemon opened it: the daemon's context, if it had none
  // before. With kWorkerCopies 0. Includes what others took of that GPU at that moment.
  uint64_t daemon_bytes() const { return daemon_bytes_; }

  // Stretches of the chunk at `place` of a call; chunks of a call are of one size.
  static std::vector<GpuStretch> Stretches(uint64_t place, uint64_t size, const GpuLayout& layout);
  // The same, run by run, for the daemon. REQUIRES: kDaemonCopies.
  std::vector<client::GpuRun> Runs(uint64_t place, uint64_t size, const GpuLayout& layout) const;

  // Copies all of a chunk between there and `host`, which holds its payload from `from` on.
  struct Part {
    uint64_t place = 0;
    uint64_t size = 0;  // of the chunk
    GpuLayout layout;
    uint64_t from = 0;          // of the payload
    std::span<std::byte> host;  // only read when it goes to the GPU
  };
  absl::Status Copy(GpuCopyWay way, std::span<const Part> parts);
  // Host memory that the driver knows, for a call's chunks.
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
