// The work of one client's peer under way, on the loop's thread: puts and gets to GPUs that are not
// answered yet. Each holds its part of the tenant's memory for messages until it is gone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "proto/local/protocol.h"
#include "server/local/gpu_get.h"
#include "server/local/message_memory.h"
#include "server/local/put_job.h"
#include "tiers/base/clock.h"

namespace kvkeep {

// When a put's client is told, before the answer, that its memory is no longer read.
enum class SaysCopied { kIfDurable, kOnceFetched };

struct PeerPut {
  local::Kind kind = local::Kind::kPut;
  uint64_t id = 0;  // of the message
  MonotonicTime began{0};
  bool copying = false;
  std::shared_ptr<MessageHold> held;
  std::shared_ptr<PutJob> put;
  std::optional<MonotonicTime> waits_since;  // for space
  // In parts: which piece was waited for at a tick, and since when.
  std::optional<uint64_t> awaited_piece;
  MonotonicTime since{0};
};

struct PeerGpuGet {
  uint64_t id = 0;  // of the message
  MonotonicTime began{0};
  std::shared_ptr<MessageHold> held;
  std::shared_ptr<GpuGet> get;
};

// A lookup that asks beyond the node.
struct PeerAsking {
  local::Kind kind{};
  uint64_t id = 0;  // of the message
  MonotonicTime began{0};
  std::shared_ptr<MessageHold> held;
  std::vector<std::byte> body;
};

// A delete that is done but not answered yet.
struct PeerDeleting {
  uint64_t id = 0;  // of the message
  MonotonicTime began{0};
  size_t keys = 0;
  uint64_t chunks = 0;  // that went
};

}  // namespace kvkeep
