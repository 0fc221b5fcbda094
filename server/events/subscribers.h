// Subscribers: the publisher's two ZeroMQ sockets. One publishes, and knows when somebody
// subscribes or leaves. The other answers subscribers that ask for messages again (replays).
//
// A queued message is held once, however many subscribers or answers wait for it. Queued payloads
// have one limit: beyond queued_bytes every subscriber is disconnected (DropAll). A subscriber that
// reads reconnects at once, any other when it reads again. One subscriber alone cannot reach the
// limit: its queue holds a quarter of it. Messages that come while the queue is full are lost to
// that subscriber, which sees the gap in the numbers. A replay fits into an empty queue. A
// subscriber that asks for another replay before it has read the last one may get only a part of
// it, without its end.
//
// One thread. Messages have three frames: topic, number (8 bytes, big endian), payload. A request
// for a replay is an empty frame, then the first number wanted in 8 bytes. Each message of the
// answer is an empty frame, topic, number, payload; the last has no topic, number -1 and no
// payload. These are the formats of vLLM (0.33) and SGLang (0.5.23).
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "tiers/base/units.h"

namespace kvkeep {

struct SubscriberOptions {
  std::string endpoint;         // "tcp://127.0.0.1:5557", "ipc:///path"
  std::string replay_endpoint;  // empty: none
  // Mode of the files of ipc endpoints. An existing file that is not a socket, or whose socket is
  // in use, stays.
  mode_t ipc_mode = 0600;
  std::string ipc_group;  // empty: the daemon's
  std::string topic = "kv-events";
  uint64_t queued_bytes = 256 * kMiB;  // limit of queued payloads, for all subscribers together
  uint64_t replay_bytes = 64 * kMiB;   // of the last messages, kept for replays; at most half
                                       // as many messages as may wait for one subscriber
};

// The publisher keeps payloads to this many bytes, except for a single chunk that needs more.
inline constexpr uint64_t kMessageBytes = 64 * kKiB;

// Returns how many messages may wait for one subscriber: a quarter of queued_bytes, if each has
// kMessageBytes.
int QueuedMessages(const SubscriberOptions& options);

class Subscribers {
 public:
  // Messages are numbered from `first` on. It must be above all numbers of an earlier process, as
  // subscribers drop lower ones. An error begins with "zmq: " or "zmq_replay: ".
  static absl::StatusOr<std::unique_ptr<Subscribers>> Open(const SubscriberOptions& options,
                                                           uint64_t first);
  ~Subscribers();
  Subscribers(const Subscribers&) = delete;
  Subscribers& operator=(const Subscribers&) = delete;

  struct News {
    bool joined = false;  // somebody subscribed since the last Wait
    bool woken = false;   // `wake` is readable
    uint64_t replays = 0;
  };
  // Waits for at most `timeout` (negative: for ever) until somebody comes, goes or asks for a
  // replay, which it answers. `wake`: a descriptor.
  News Wait(int wake, std::chrono::milliseconds timeout);
  // The number of subscriptions.
  uint64_t count() const { return count_; }
  void Publish(std::string payload);
  // Bytes of payloads that wait for subscribers, each counted once. Excludes ZeroMQ's part of a
  // queued message, some hundred bytes, which QueuedMessages bounds for each connection.
  uint64_t queued_bytes() const { return queued_->load(std::memory_order_relaxed); }
  bool over_limit() const { return queued_bytes() > options_.queued_bytes; }
  // Ends every connection, which gives back all that waits; Wait tells who comes back. Returns how
  // many subscriptions there were. Until the endpoints can be bound again there are no subscribers;
  // each Wait tries to bind them.
  uint64_t DropAll();

 private:
  struct Waiting;  // a payload as ZeroMQ has it
  struct Message {
    uint64_t number;
    std::shared_ptr<const std::string> payload;
    std::weak_ptr<Waiting> waiting;  // while somebody waits for it
  };

  Subscribers(const SubscriberOptions& options, uint64_t first) : options_(options), next_(first) {}
  absl::Status BindAll();
  absl::Status Bind(void** socket, int type, const std::string& endpoint);
  void Close();
  bool ReadSubscriptions();
  uint64_t AnswerReplays();
  void SendPayload(void* socket, Message& message);  // the last frame

  const SubscriberOptions options_;
  // Null while the endpoints cannot be bound.
  void* context_ = nullptr;
  void* publish_ = nullptr;
  void* replay_ = nullptr;  // null also without a replay endpoint
  // ZeroMQ's own threads count down.
  const std::shared_ptr<std::atomic<uint64_t>> queued_ = std::make_shared<std::atomic<uint64_t>>(0);
  uint64_t count_ = 0;
  uint64_t next_;
  std::deque<Message> kept_;
  uint64_t kept_bytes_ = 0;
};

}  // namespace kvkeep
