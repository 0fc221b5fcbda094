// Subscribers: the sockets of the publisher, ZeroMQ's: one that publishes and knows when somebody
// subscribes or leaves, one that answers who asks for messages again.
//
// One thread. Messages have three frames: topic, number (8 bytes, big endian), payload. Who asks
// again sends the first number it wants in 8 bytes behind an empty frame; each answer is an empty
// frame, number, payload; the last has number -1 and no payload: as vLLM's.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

namespace kvkeep {

struct SubscriberOptions {
  std::string endpoint;         // "tcp://127.0.0.1:5557", "ipc:///path"
  std::string replay_endpoint;  // empty: none
  std::string topic = "kv-events";
  int queued_messages = 2'000;               // for one subscriber; over it its messages are dropped
  uint64_t replay_bytes = 64 * 1024 * 1024;  // of the last messages, kept for who asks again;
                                             // half of queued_messages at most
};

class Subscribers {
 public:
  // Messages are numbered from `first` on: so large that it is above all numbers of an earlier
  // process, as subscribers drop what is not.
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
  // Waits for at most `timeout` (negative: for ever) until somebody comes, goes or asks, and
  // answers who asks. `wake`: a descriptor.
  News Wait(int wake, std::chrono::milliseconds timeout);
  // How many subscriptions there are.
  uint64_t count() const { return count_; }
  void Publish(std::string payload);

 private:
  struct Message {
    uint64_t number;
    std::string payload;
  };
  Subscribers(const SubscriberOptions& options, uint64_t first) : options_(options), next_(first) {}
  absl::Status Bind(void** socket, int type, const std::string& endpoint);
  bool ReadSubscriptions();
  uint64_t AnswerReplays();

  const SubscriberOptions options_;
  void* context_ = nullptr;
  void* publish_ = nullptr;
  void* replay_ = nullptr;  // null: none
  uint64_t count_ = 0;
  uint64_t next_;
  std::deque<Message> kept_;
  uint64_t kept_bytes_ = 0;
};

}  // namespace kvkeep
