// BarePeer: a connection to one of the daemon's Unix sockets that sends what no library would send.
#pragma once

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/local/message.h"
#include "tests/server/other_user.h"

namespace kvkeep::e2e {

// While this lives, new daemons run as on Linux before 6.16, which accepts all descriptors that
// peers pass.
class OlderKernel {
 public:
  explicit OlderKernel(bool older) {
    if (older) setenv(kVariable, "1", 1);
  }
  ~OlderKernel() { unsetenv(kVariable); }

 private:
  static constexpr const char* kVariable = "KVKEEPD_ANY_DESCRIPTOR";
};

// Raises the limit of descriptors to the system's; the usual soft limit is 1024.
inline void RaiseOurDescriptors() {
  rlimit files{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = files.rlim_max;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
}

class BarePeer {
 public:
  BarePeer(const std::string& path, int type, uid_t user = geteuid())
      : socket_(user == geteuid() ? ConnectTo(path, type)
                                  : ConnectAs(user, kSomeGroup, path, type)) {
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  bool connected() const { return socket_.valid(); }
  int fd() const { return socket_.get(); }

  // Returns false if the kernel, or the daemon, did not take it.
  bool Send(std::span<const std::byte> packet, std::span<const int> fds = {}) {
    return local::SendPacket(socket_.get(), packet, fds, MSG_DONTWAIT).ok();
  }
  template <typename Body>
  bool Send(local::Kind kind, const Body& body, std::span<const int> fds = {}) {
    local::MessageWriter message(static_cast<uint16_t>(kind), ++id_);
    message.Append(body);
    return Send(message.Finish(), fds);
  }
  // Returns the first packet of a message of this size, without content.
  std::vector<std::byte> FirstPacket(uint32_t message_bytes) {
    std::vector<std::byte> packet(local::kMaxPacketBytes);
    const local::MessageHeader header{
        .bytes = message_bytes, .kind = static_cast<uint16_t>(local::Kind::kPut), .id = ++id_};
    std::memcpy(packet.data(), &header, sizeof(header));
    return packet;
  }
  // Opens a session. Returns the status of the answer.
  absl::Status Hello() {
    if (!Send(local::Kind::kHello, local::Hello{})) return absl::UnavailableError("not sent");
    const auto reply = Receive();
    if (!reply.ok()) return reply.status();
    local::BodyReader body((**reply).bytes.subspan(sizeof(local::MessageHeader)));
    return local::ReadReplyStatus(&body);
  }
  // Receives a packet and keeps its descriptors: without the event socket there is no session.
  absl::StatusOr<std::optional<local::Packet>> Receive() {
    auto packet = local::ReceivePacket(socket_.get(), buffer_, 0);
    if (packet.ok() && packet->has_value()) {
      for (UniqueFd& fd : (**packet).descriptors) kept_.push_back(std::move(fd));
    }
    return packet;
  }

 private:
  UniqueFd socket_;
  uint64_t id_ = 0;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(local::kMaxPacketBytes);
  std::vector<UniqueFd> kept_;
};

}  // namespace kvkeep::e2e
