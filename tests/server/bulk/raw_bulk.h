// RawBulk: a client of the bulk door made of a bare socket, which says what a test wants it to say.
// Blocking, with a limit on every wait. One thread.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <optional>
#include <string>

#include "kvkeep/v1/bulk.pb.h"
#include "kvkeep/v1/kvkeep.pb.h"
#include "proto/bulk/frame.h"
#include "tiers/base/checksum.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class RawBulk {
 public:
  struct Frame {
    bulk::FrameHead head;
    std::string message, payload;
  };

  explicit RawBulk(const std::string& path)
      : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }

  int fd() const { return socket_.get(); }
  void Leave() { socket_.Reset(); }

  void SendBytes(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      pollfd polled{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
      REQUIRE(poll(&polled, 1, kPatienceMs) == 1);
      const ssize_t step = send(socket_.get(), bytes.data() + sent, bytes.size() - sent,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
      if (step < 0 && (errno == EPIPE || errno == ECONNRESET)) return;  // the daemon cut it off
      if (step > 0) sent += static_cast<size_t>(step);
    }
  }
  void Send(bulk::FrameKind kind, const std::string& message, const std::string& payload = "") {
    SendBytes(bulk::EncodeHead(kind, message.size(), payload.size()) + message + payload);
  }

  // Returns none at the end of the stream.
  std::optional<Frame> Receive() {
    std::string bytes;
    if (!ReceiveBytes(bulk::kHeadBytes, &bytes)) return std::nullopt;
    Frame frame;
    std::memcpy(&frame.head, bytes.data(), sizeof(frame.head));
    REQUIRE(frame.head.message_bytes <= bulk::kMaxMessageBytes);
    REQUIRE(frame.head.payload_bytes <= 8 * kMiB);
    if (!ReceiveBytes(frame.head.message_bytes, &frame.message)) return std::nullopt;
    if (!ReceiveBytes(frame.head.payload_bytes, &frame.payload)) return std::nullopt;
    return frame;
  }
  template <typename Message>
  Message Expect(bulk::FrameKind kind) {
    const std::optional<Frame> frame = Receive();
    REQUIRE(frame.has_value());
    REQUIRE(frame->head.kind == kind);
    Message message;
    REQUIRE(message.ParseFromString(frame->message));
    return message;
  }
  v1::BulkEnd ExpectEnd() { return Expect<v1::BulkEnd>(bulk::FrameKind::kEnd); }
  // The daemon closes, having said why.
  v1::BulkEnd ExpectEndOfConnection() {
    const v1::BulkEnd end = ExpectEnd();
    CHECK(end.code() != 0);
    CHECK_FALSE(Receive().has_value());
    return end;
  }

  void Hello() {
    v1::BulkHello hello;
    hello.set_min_version(1);
    hello.set_max_version(1);
    Send(bulk::FrameKind::kHello, hello.SerializeAsString());
    CHECK(Expect<v1::BulkWelcome>(bulk::FrameKind::kWelcome).version() == 1);
  }

 private:
  static constexpr int kPatienceMs = 20'000;

  bool ReceiveBytes(size_t bytes, std::string* to) {
    to->resize(bytes);
    for (size_t came = 0; came < bytes;) {
      pollfd polled{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      REQUIRE(poll(&polled, 1, kPatienceMs) == 1);
      const ssize_t step = recv(socket_.get(), to->data() + came, bytes - came, 0);
      if (step <= 0) return false;
      came += static_cast<size_t>(step);
    }
    return true;
  }

  UniqueFd socket_;
};

// Returns the payload of a Put frame: the chunk, then the checksum of each of its pieces.
inline std::string WithTrailer(const std::string& payload) {
  std::string framed = payload;
  for (size_t at = 0; at < payload.size(); at += kPieceBytes) {
    const uint64_t checksum =
        Xxh3(std::as_bytes(std::span(payload))
                 .subspan(at, std::min<size_t>(kPieceBytes, payload.size() - at)));
    framed.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  }
  return framed;
}

}  // namespace kvkeep
