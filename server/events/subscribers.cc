#include "server/events/subscribers.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>
#include <sys/socket.h>
#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "server/sockets/unix_socket.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

constexpr uint64_t kEnd = UINT64_MAX;      // -1
constexpr int kMostReplaysAtOnce = 4;      // between two messages
constexpr int64_t kMostAskedBytes = 1024;  // of a frame that a subscriber sends
constexpr uint64_t kQueueParts = 4;        // of queued_bytes; one subscriber has one part
constexpr std::chrono::milliseconds kTryAgain{200};  // to bind the endpoints

std::string BigEndian(uint64_t number) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(number >> shift));
  return bytes;
}

uint64_t FromBigEndian(absl::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

// Returns all frames of the next message; none if there is no message.
std::optional<std::vector<std::string>> Receive(void* socket) {
  std::vector<std::string> frames;
  for (int more = 1; more != 0;) {
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&frame);
      return std::nullopt;
    }
    frames.emplace_back(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
    more = zmq_msg_more(&frame);
    zmq_msg_close(&frame);
  }
  return frames;
}

// Returns false if there is no room; then none of it was sent. `more` frames follow: ZMQ_SNDMORE,
// or 0.
bool Send(void* socket, std::initializer_list<absl::string_view> frames, int more = 0) {
  size_t left = frames.size();
  for (const absl::string_view frame : frames) {
    const int flags = ZMQ_DONTWAIT | (--left > 0 ? ZMQ_SNDMORE : more);
    if (zmq_send(socket, frame.data(), frame.size(), flags) < 0) return false;
  }
  return true;
}

}  // namespace

// A payload in queues, counted once however many queues have it.
struct Subscribers::Waiting {
  Waiting(std::shared_ptr<const std::string> held, std::shared_ptr<std::atomic<uint64_t>> counted)
      : payload(std::move(held)), queued(std::move(counted)) {
    queued->fetch_add(payload->size(), std::memory_order_relaxed);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() { queued->fetch_sub(payload->size(), std::memory_order_relaxed); }

  // Called when ZeroMQ no longer has the payload.
  static void Taken(void*, void* hint) { delete static_cast<std::shared_ptr<Waiting>*>(hint); }

  const std::shared_ptr<const std::string> payload;
  const std::shared_ptr<std::atomic<uint64_t>> queued;
};

int QueuedMessages(const SubscriberOptions& options) {
  return static_cast<int>(
      std::clamp<uint64_t>(options.queued_bytes / kQueueParts / kMessageBytes, 1, 1'000'000));
}

absl::StatusOr<std::unique_ptr<Subscribers>> Subscribers::Open(const SubscriberOptions& options,
                                                               uint64_t first) {
  std::unique_ptr<Subscribers> all(new Subscribers(options, first));
  KVKEEP_RETURN_IF_ERROR(all->BindAll());
  return all;
}

absl::Status Subscribers::BindAll() {
  context_ = zmq_ctx_new();
  const char* key = "zmq: ";
  absl::Status bound = Bind(&publish_, ZMQ_XPUB, options_.endpoint);
  if (bound.ok() && !options_.replay_endpoint.empty()) {
    key = "zmq_replay: ";
    bound = Bind(&replay_, ZMQ_ROUTER, options_.replay_endpoint);
  }
  if (bound.ok()) return bound;
  Close();
  return {bound.code(), absl::StrCat(key, bound.message())};
}

absl::Status Subscribers::Bind(void** socket, int type, const std::string& endpoint) {
  *socket = zmq_socket(context_, type);
  if (*socket == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("ZeroMQ: ", zmq_strerror(zmq_errno())));
  }
  const int none = 0, yes = 1, queued = QueuedMessages(options_);
  const int64_t most = kMostAskedBytes;
  zmq_setsockopt(*socket, ZMQ_MAXMSGSIZE, &most, sizeof(most));
  zmq_setsockopt(*socket, ZMQ_LINGER, &none, sizeof(none));
  zmq_setsockopt(*socket, ZMQ_SNDHWM, &queued, sizeof(queued));
  // Reports every subscription, not the first one alone.
  if (type == ZMQ_XPUB) zmq_setsockopt(*socket, ZMQ_XPUB_VERBOSER, &yes, sizeof(yes));
  // A send to a subscriber that does not read fails, instead of being dropped in silence.
  if (type == ZMQ_ROUTER) zmq_setsockopt(*socket, ZMQ_ROUTER_MANDATORY, &yes, sizeof(yes));
  absl::string_view path = endpoint;
  UniqueFd listener;
  if (absl::ConsumePrefix(&path, "ipc://")) {
    // The socket is made here: ZeroMQ would unlink any file at the path, and leave the mode to the
    // umask.
    KVKEEP_ASSIGN_OR_RETURN(listener, ListenOnUnixSocket({.path = std::string(path),
                                                          .mode = options_.ipc_mode,
                                                          .group = options_.ipc_group},
                                                         SOCK_STREAM));
    const int fd = listener.get();
    zmq_setsockopt(*socket, ZMQ_USE_FD, &fd, sizeof(fd));
  }
  if (zmq_bind(*socket, endpoint.c_str()) == 0) {
    (void)listener.Release();  // ZeroMQ closes it
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat(endpoint, ": cannot be bound: ", zmq_strerror(zmq_errno())));
}

Subscribers::~Subscribers() { Close(); }

// Waits until ZeroMQ's threads have let go of everything: then the endpoints are free again.
void Subscribers::Close() {
  for (void** const socket : {&publish_, &replay_}) {
    if (*socket != nullptr) zmq_close(std::exchange(*socket, nullptr));
  }
  if (context_ != nullptr) zmq_ctx_term(std::exchange(context_, nullptr));
}

uint64_t Subscribers::DropAll() {
  Close();
  (void)BindAll();  // if it fails, Wait tries again
  return std::exchange(count_, 0);
}

Subscribers::News Subscribers::Wait(int wake, std::chrono::milliseconds timeout) {
  const bool bound = publish_ != nullptr || BindAll().ok();
  zmq_pollitem_t items[] = {
      {nullptr, wake, ZMQ_POLLIN, 0}, {publish_, 0, ZMQ_POLLIN, 0}, {replay_, 0, ZMQ_POLLIN, 0}};
  if (!bound) {
    zmq_poll(items, 1, timeout.count() < 0 ? kTryAgain.count() : timeout.count());
    return {.woken = items[0].revents != 0};
  }
  zmq_poll(items, replay_ == nullptr ? 2 : 3, timeout.count());
  return {.joined = ReadSubscriptions(),
          .woken = items[0].revents != 0,
          .replays = replay_ == nullptr ? 0 : AnswerReplays()};
}

bool Subscribers::ReadSubscriptions() {
  bool joined = false;
  while (const auto frames = Receive(publish_)) {
    const std::string& said = frames->front();  // 1 and a topic: subscribes; 0 and a topic: leaves
    if (said.empty()) continue;
    if (said[0] == 1) {
      joined = true;
      ++count_;
    } else if (said[0] == 0 && count_ > 0) {
      --count_;
    }
  }
  return joined;
}

uint64_t Subscribers::AnswerReplays() {
  uint64_t answered = 0;
  for (int i = 0; i < kMostReplaysAtOnce; ++i) {
    const auto frames = Receive(replay_);
    if (!frames.has_value()) break;
    if (frames->size() != 3 || (*frames)[2].size() != sizeof(uint64_t)) continue;
    const std::string& who = frames->front();
    const uint64_t from = FromBigEndian((*frames)[2]);
    for (Message& message : kept_) {
      if (message.number < from) continue;
      const std::string number = BigEndian(message.number);
      if (!Send(replay_, {who, "", options_.topic, number}, ZMQ_SNDMORE)) break;
      SendPayload(replay_, message);
    }
    Send(replay_, {who, "", "", BigEndian(kEnd), ""});
    ++answered;
  }
  return answered;
}

void Subscribers::SendPayload(void* socket, Message& message) {
  std::shared_ptr<Waiting> waiting = message.waiting.lock();
  if (waiting == nullptr) waiting = std::make_shared<Waiting>(message.payload, queued_);
  message.waiting = waiting;
  zmq_msg_t frame;
  // ZeroMQ only reads it.
  zmq_msg_init_data(&frame, const_cast<char*>(message.payload->data()), message.payload->size(),
                    Waiting::Taken, new std::shared_ptr<Waiting>(std::move(waiting)));
  if (zmq_msg_send(&frame, socket, ZMQ_DONTWAIT) < 0) zmq_msg_close(&frame);
}

void Subscribers::Publish(std::string payload) {
  Message message{next_++, std::make_shared<const std::string>(std::move(payload)), {}};
  if (publish_ != nullptr &&
      Send(publish_, {options_.topic, BigEndian(message.number)}, ZMQ_SNDMORE)) {
    SendPayload(publish_, message);
  }
  kept_bytes_ += message.payload->size();
  kept_.push_back(std::move(message));
  // An answer fits into the queue of the subscriber that asks.
  const size_t most = static_cast<size_t>(QueuedMessages(options_)) / 2;
  while (kept_bytes_ > options_.replay_bytes || kept_.size() > most) {
    kept_bytes_ -= kept_.front().payload->size();
    kept_.pop_front();
  }
}

}  // namespace kvkeep
