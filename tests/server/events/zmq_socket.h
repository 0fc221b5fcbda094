// A ZeroMQ socket of a router.
#pragma once

#include <zmq.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace kvkeep {

inline uint64_t FromBigEndian(const std::string& bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

// A socket whose receive waits ten seconds.
class Socket {
 public:
  // `received`: unread messages that it holds; 0: no limit.
  Socket(int type, const std::string& endpoint, int received = 0)
      : socket_(zmq_socket(context_, type)) {
    const int patience = 10'000, none = 0;
    zmq_setsockopt(socket_, ZMQ_RCVHWM, &received, sizeof(received));
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience, sizeof(patience));
    zmq_setsockopt(socket_, ZMQ_LINGER, &none, sizeof(none));
    if (type == ZMQ_SUB) zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, "", 0);
    REQUIRE(zmq_connect(socket_, endpoint.c_str()) == 0);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void Send(const std::vector<std::string>& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      const int flags = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
      REQUIRE(zmq_send(socket_, frames[i].data(), frames[i].size(), flags) >= 0);
    }
  }
  // Lets ZeroMQ do its work, like a read.
  void Look() const {
    int events = 0;
    size_t size = sizeof(events);
    REQUIRE(zmq_getsockopt(socket_, ZMQ_EVENTS, &events, &size) == 0);
  }
  // Returns empty if no message came.
  std::vector<std::string> Receive() {
    std::vector<std::string> frames;
    for (int more = 1; more != 0;) {
      zmq_msg_t frame;
      zmq_msg_init(&frame);
      if (zmq_msg_recv(&frame, socket_, 0) < 0) return {};
      frames.emplace_back(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
      more = zmq_msg_more(&frame);
      zmq_msg_close(&frame);
    }
    return frames;
  }

 private:
  void* const context_ = zmq_ctx_new();
  void* const socket_;
};

}  // namespace kvkeep
