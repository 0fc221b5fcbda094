// PeerGpu: one peer's memory of GPUs, and the gets that copy chunks there. One thread, the loop's;
// the answers of GPUs come back there and hold this weakly, as the connection may be gone.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>

#include <memory>

#include "proto/local/message.h"
#include "server/local/context.h"
#include "server/local/gpu_get.h"
#include "server/local/message_memory.h"
#include "server/local/peer_replies.h"
#include "server/local/peer_session.h"
#include "server/local/session_gpu.h"

namespace kvkeep {

class PeerGpu : public std::enable_shared_from_this<PeerGpu> {
 public:
  PeerGpu(std::shared_ptr<const LocalContext> context, std::shared_ptr<PeerSession> session,
          std::shared_ptr<PeerReplies> replies);

  // ---- requests; those that succeed are answered later
  // Takes the descriptor, if one came with the message.
  absl::Status Register(local::Message& message);
  absl::Status Unregister(const local::Message& message);
  // Notes its own end, unless it returns an error.
  absl::Status Get(const local::Message& message);

  // What the session's puts from GPUs may name.
  const SessionGpu& regions() const { return regions_; }
  // Returns how many gets are not answered yet.
  size_t in_flight() const { return gets_.size(); }
  // Ends the session's part: gets begin no further copy, and the registrations are given back. Puts
  // that name them must be cancelled before.
  void Cancel();
  // Call when the connection is gone: nothing more is answered.
  void End() { gets_.clear(); }

 private:
  struct Getting {
    uint64_t id = 0;  // of the message
    MonotonicTime began{0};
    MessageHold held;
    std::shared_ptr<GpuGet> get;
  };

  void OnRegistered(uint64_t id, uint32_t number, const absl::Status& status, GpuRegionPtr region);
  void OnUnregistered(uint64_t id);
  void OnGetDone(uint64_t number);

  const std::shared_ptr<const LocalContext> context_;
  const std::shared_ptr<PeerSession> session_;
  const std::shared_ptr<PeerReplies> replies_;
  SessionGpu regions_;
  uint64_t next_number_ = 1;
  absl::flat_hash_map<uint64_t, Getting> gets_;
};

}  // namespace kvkeep
