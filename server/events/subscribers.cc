#include "server/events/subscribers.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <zmq.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr uint64_t kEnd = UINT64_MAX;      // -1
constexpr int kMostReplaysAtOnce = 4;      // between two messages
constexpr int64_t kMostAskedBytes = 1024;  // of a frame that somebody sends us

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

// All frames of the next message; nothing when there is none.
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

// False: there is no room for it; none of it was sent.
bool Send(void* socket, std::initializer_list<absl::string_view> frames) {
  size_t left = frames.size();
  for (const absl::string_view frame : frames) {
    const int flags = ZMQ_DONTWAIT | (--left > 0 ? ZMQ_SNDMORE : 0);
    if (zmq_send(socket, frame.data(), frame.size(), flags) < 0) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Subscribers>> Subscribers::Open(const SubscriberOptions& options,
                                                               uint64_t first) {
  std::unique_ptr<Subscribers> all(new Subscribers(options, first));
  all->context_ = zmq_ctx_new();
  KVKEEP_RETURN_IF_ERROR(all->Bind(&all->publish_, ZMQ_XPUB, options.endpoint));
  if (!options.replay_endpoint.empty()) {
    KVKEEP_RETURN_IF_ERROR(all->Bind(&all->replay_, ZMQ_ROUTER, options.replay_endpoint));
  }
  return all;
}

absl::Status Subscribers::Bind(void** socket, int type, const std::string& endpoint) {
  *socket = zmq_socket(context_, type);
  if (*socket == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("ZeroMQ: ", zmq_strerror(zmq_errno())));
  }
  const int none = 0, yes = 1;
  const int64_t most = kMostAskedBytes;
  zmq_setsockopt(*socket, ZMQ_MAXMSGSIZE, &most, sizeof(most));
  zmq_setsockopt(*socket, ZMQ_LINGER, &none, sizeof(none));
  zmq_setsockopt(*socket, ZMQ_SNDHWM, &options_.queued_messages, sizeof(int));
  // Told of every subscriber, not of the first one alone.
  if (type == ZMQ_XPUB) zmq_setsockopt(*socket, ZMQ_XPUB_VERBOSER, &yes, sizeof(yes));
  // A send to who does not read fails, and is not dropped in silence.
  if (type == ZMQ_ROUTER) zmq_setsockopt(*socket, ZMQ_ROUTER_MANDATORY, &yes, sizeof(yes));
  if (zmq_bind(*socket, endpoint.c_str()) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(endpoint, ": cannot be bound: ", zmq_strerror(zmq_errno())));
}

Subscribers::~Subscribers() {
  for (void* const socket : {publish_, replay_}) {
    if (socket != nullptr) zmq_close(socket);
  }
  if (context_ != nullptr) zmq_ctx_term(context_);
}

Subscribers::News Subscribers::Wait(int wake, std::chrono::milliseconds timeout) {
  zmq_pollitem_t items[] = {
      {nullptr, wake, ZMQ_POLLIN, 0}, {publish_, 0, ZMQ_POLLIN, 0}, {replay_, 0, ZMQ_POLLIN, 0}};
  zmq_poll(items, replay_ == nullptr ? 2 : 3, timeout.count());
  return {.joined = ReadSubscriptions(),
          .woken = items[0].revents != 0,
          .replays = replay_ == nullptr ? 0 : AnswerReplays()};
}

bool Subscribers::ReadSubscriptions() {
  bool joined = false;
  while (const auto frames = Receive(publish_)) {
    const std::string& said = frames->front();  // 1 and a topic: subscribes; 0 and it: leaves
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
    for (const Message& message : kept_) {
      if (message.number < from) continue;
      if (!Send(replay_, {who, "", BigEndian(message.number), message.payload})) break;
    }
    Send(replay_, {who, "", BigEndian(kEnd), ""});
    ++answered;
  }
  return answered;
}

void Subscribers::Publish(std::string payload) {
  Send(publish_, {options_.topic, BigEndian(next_), payload});
  kept_bytes_ += payload.size();
  kept_.push_back({next_++, std::move(payload)});
  // An answer fits into the queue of who asks.
  const size_t most = static_cast<size_t>(options_.queued_messages) / 2;
  while (kept_bytes_ > options_.replay_bytes || kept_.size() > most) {
    kept_bytes_ -= kept_.front().payload.size();
    kept_.pop_front();
  }
}

}  // namespace kvkeep
