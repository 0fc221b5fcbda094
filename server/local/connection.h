// LocalConnection: a peer with its sockets: packets in and out, bounded both ways, and whether its
// client is alive. One thread, the endpoint's.
//
// A client that does not read its replies is not read from until it does. It is cut off when more
// than max_unsent_bytes pile up, or when replies or half a message wait for longer than the time of
// grace. Memory of half messages and replies is charged to the tenant's account. A client that
// holds something is pinged; any message from it counts as an answer.
//
// A peer may pass one descriptor with a whole RegisterMemory or RegisterGpuMemory. Any other
// descriptor ends the connection. Descriptors are not closed here, nor are the sockets, whose
// queues may contain some: the last close of a descriptor may have to wait (descriptor_closer.h).
#pragma once

#include <absl/status/status.h>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "server/local/peer.h"
#include "server/requests/gauge.h"
#include "server/sockets/event_loop.h"
#include "tiers/base/clock.h"

namespace kvkeep {

class LocalConnection final : private PeerSink {
 public:
  // The source of an event of the loop: the key is `id` * kChannels + channel.
  enum Channel : uint64_t { kSocket, kEvents, kProcess, kChannels };

  // State that connections share besides the context. Borrowed.
  struct Round {
    EventLoop* loop = nullptr;
    std::vector<uint64_t> touched;  // ids of connections to settle at the end of the round
    std::vector<std::byte> spare;   // for a message of several packets
  };
  // `process`: see WatchPeer; may be invalid.
  LocalConnection(std::shared_ptr<const LocalContext> context, Round* round, uint64_t id,
                  ExpendableFd socket, UniqueFd process, LocalPeer::Identity identity,
                  MonotonicTime now);
  ~LocalConnection() override;
  // ResourceExhausted: the kernel cannot watch more sockets.
  absl::Status Start();

  void OnEvent(Channel channel, uint32_t events, std::span<std::byte> buffer, MonotonicTime now);
  void OnTick(std::span<std::byte> buffer, MonotonicTime now);
  void NotifyDraining() { peer_->NotifyDraining(); }
  // Ends a round in which it was touched: has the loop watch for what it needs next. Returns false
  // if it is closed and must be destroyed.
  bool Settle();

 private:
  // Returns whether half a message is there, or one is being thrown away.
  bool in_message() const { return skipping_ > 0 || !assembler_.idle(); }

  struct Unsent {  // one packet
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> descriptors;
  };

  void Send(std::span<const std::byte> message, std::vector<UniqueFd> descriptors) override;
  absl::StatusOr<UniqueFd> OpenEvents() override;
  void SendEvent(std::span<const std::byte> message) override;
  void Close(const absl::Status& why) override;

  void ReadSocket(std::span<std::byte> buffer, MonotonicTime now);
  // Returns whether the packet is useless, or part of a message that is thrown away.
  bool Skip(std::span<const std::byte> packet, MonotonicTime now);
  void OnPacket(std::span<const std::byte> packet, std::vector<UniqueFd> passed, MonotonicTime now);
  bool TakesDescriptor(std::span<const std::byte> packet) const;
  void ReadOff(std::span<std::byte> buffer);
  void RefuseDescriptors(std::vector<UniqueFd>* passed);
  void CheckDeadlines(MonotonicTime now);
  void CheckLife(MonotonicTime now);
  void ReadEvents(std::span<std::byte> buffer, MonotonicTime now);
  void SendUnsent();
  void Broken(const absl::Status& why);
  void Ping(MonotonicTime now);
  void Touch();
  uint64_t Key(Channel channel) const { return id_ * kChannels + channel; }

  const std::shared_ptr<const LocalContext> context_;
  Round* const round_;
  const uint64_t id_;
  const MonotonicTime opened_;
  const GaugeHold open_;
  const DescriptorCloser::Owner closes_;  // whom its descriptors are charged to
  ExpendableFd socket_, events_;
  UniqueFd process_;
  MessageHold half_, unsent_held_;
  const std::shared_ptr<LocalPeer> peer_;
  local::MessageAssembler assembler_;
  uint64_t skipping_ = 0;                        // bytes left of a message that is thrown away
  std::optional<MonotonicTime> half_since_;      // when half a message was first there
  std::deque<Unsent> unsent_;
  std::optional<MonotonicTime> unsent_since_;    // when the first of these was tried
  bool socket_watched_ = false, events_watched_ = false;
  uint32_t watched_ = 0;
  bool touched_ = false;
  bool closed_ = false;
  MonotonicTime heard_;                      // when the client last said something
  std::optional<MonotonicTime> unanswered_;  // when the ping that it has not answered was sent
};

}  // namespace kvkeep
