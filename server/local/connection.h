// LocalConnection: a peer with its sockets: packets in and out, bounded both ways, and whether its
// client is alive. One thread, the endpoint's.
//
// A client that does not read its replies is not read from until it has; one that lets more than
// max_unsent_bytes pile up is cut off, as is one that leaves them, or half a message, for the
// time of grace. Memory of half messages and replies is charged to the tenant's account. A
// client that holds something is pinged; any message of it is an answer.
//
// A peer may pass one descriptor with a whole RegisterMemory or RegisterGpuMemory. Any other ends
// the connection. None is closed here, nor are the sockets, in whose queues some may lie: who
// closes it last may wait for it (descriptor_closer.h).
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
    std::vector<uint64_t> touched;  // ids of those to be settled at the end of the round
    std::vector<std::byte> spare;   // for a message of several packets
  };
  // `process`: see WatchPeer; may be invalid.
  LocalConnection(std::shared_ptr<const LocalContext> context, Round* round, uint64_t id,
                  ExpendableFd socket, UniqueFd process, LocalPeer::Identity identity,
                  MonotonicTime now);
  ~LocalConnection() override;
  // ResourceExhausted: the kernel watches no more.
  absl::Status Start();

  void OnEvent(Channel channel, uint32_t events, std::span<std::byte> buffer, MonotonicTime now);
  void OnTick(std::span<std::byte> buffer, MonotonicTime now);
  void NotifyDraining() { peer_->NotifyDraining(); }
  // At the end of a round in which it was touched: waits for what it needs next. False: it is
  // closed, destroy it.
  bool Settle();

 private:
  // Half a message, or some that is thrown away.
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
  // The packet is of no use, or of a message that is thrown away.
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
  const DescriptorCloser::Owner closes_;  // whose its descriptors are
  ExpendableFd socket_, events_;
  UniqueFd process_;
  MessageHold half_, unsent_held_;
  const std::shared_ptr<LocalPeer> peer_;
  local::MessageAssembler assembler_;
  uint64_t skipping_ = 0;                        // bytes left of a message that is thrown away
  std::optional<MonotonicTime> half_since_;      // half a message is there since
  std::deque<Unsent> unsent_;
  std::optional<MonotonicTime> unsent_since_;    // the first of these was tried
  bool socket_watched_ = false, events_watched_ = false;
  uint32_t watched_ = 0;
  bool touched_ = false;
  bool closed_ = false;
  MonotonicTime heard_;                      // when the client last said something
  std::optional<MonotonicTime> unanswered_;  // when it was pinged, not having answered since
};

}  // namespace kvkeep
