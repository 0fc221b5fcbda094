// ScriptedServer: an HTTP server of a test, which runs its script, lies included. Each connection
// has a thread; the script gets the connection and may read, send, wait and cut at will.
//
// It waits for clients, never for time: Drip and AwaitClose watch the socket.
#pragma once

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/free_port.h"
#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class ServedConnection {
 public:
  explicit ServedConnection(UniqueFd fd) : fd_(std::move(fd)) {}

  // Reads up to the blank line; empty if the client has gone.
  std::string ReadHead() {
    while (true) {
      if (const size_t end = buffered_.find("\r\n\r\n"); end != std::string::npos) {
        std::string head = buffered_.substr(0, end + 4);
        buffered_.erase(0, end + 4);
        return head;
      }
      if (!Fill()) return "";
    }
  }
  // Reads this many bytes, or fewer if the client has gone.
  std::string ReadBody(size_t bytes) {
    while (buffered_.size() < bytes && Fill()) {
    }
    std::string body = buffered_.substr(0, bytes);
    buffered_.erase(0, body.size());
    return body;
  }
  bool Send(const std::string& text) {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t n = send(fd_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }
  // Sends `text` repeatedly, at this interval, until the client goes.
  void Drip(const std::string& text, int apart_ms) {
    while (Send(text) && !Gone(apart_ms)) {
    }
  }
  void AwaitClose() {
    while (!Gone(1000)) {
    }
  }
  // Closes the connection so that the client sees a reset.
  void Reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    fd_.Reset();
  }
  void ShutDown() { shutdown(fd_.get(), SHUT_RDWR); }
  // Forwards requests to a server on this machine, and its answers back, until one of both closes.
  void RelayTo(int port) {
    const UniqueFd there(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address{.sin_family = AF_INET,
                              .sin_port = htons(static_cast<uint16_t>(port)),
                              .sin_addr = {htonl(INADDR_LOOPBACK)},
                              .sin_zero = {}};
    if (connect(there.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      return;
    }
    pollfd waits[] = {{.fd = fd_.get(), .events = POLLIN, .revents = 0},
                      {.fd = there.get(), .events = POLLIN, .revents = 0}};
    while (poll(waits, 2, -1) > 0) {
      for (const int from : {0, 1}) {
        if (waits[from].revents == 0) continue;
        char bytes[65536];
        const ssize_t n = recv(waits[from].fd, bytes, sizeof(bytes), 0);
        if (n <= 0 || send(waits[1 - from].fd, bytes, static_cast<size_t>(n), MSG_NOSIGNAL) != n) {
          return;
        }
      }
    }
  }

 private:
  bool Fill() {
    char bytes[65536];
    const ssize_t n = recv(fd_.get(), bytes, sizeof(bytes), 0);
    if (n <= 0) return false;
    buffered_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  bool Gone(int within_ms) {
    pollfd waits{.fd = fd_.get(), .events = POLLIN | POLLRDHUP};
    if (poll(&waits, 1, within_ms) <= 0) return false;
    char byte;
    return (waits.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0 ||
           recv(fd_.get(), &byte, 1, MSG_PEEK) <= 0;
  }

  UniqueFd fd_;
  std::string buffered_;
};

class ScriptedServer {
 public:
  // `connection`: counted from 0.
  using Script = std::function<void(ServedConnection& connection, int number)>;

  explicit ScriptedServer(Script script) : script_(std::move(script)), fd_(BindFreePort(&port_)) {
    KVKEEP_CHECK(listen(fd_.get(), 128) == 0);
    thread_ = std::thread([this] { Accept(); });
  }
  // The test's engine must be gone by then, or the scripts would wait for ever.
  ~ScriptedServer() {
    shutdown(fd_.get(), SHUT_RDWR);
    thread_.join();
    for (std::thread& connection : connections_) connection.join();
  }

  std::string url(const std::string& path = "/b/k") const {
    return absl::StrCat("http://127.0.0.1:", port_, path);
  }
  int connections() const { return accepted_.load(); }

 private:
  void Accept() {
    while (true) {
      UniqueFd fd(accept(fd_.get(), nullptr, nullptr));
      if (!fd.valid()) return;
      const int number = accepted_++;
      connections_.emplace_back([this, number, fd = std::move(fd)]() mutable {
        ServedConnection connection(std::move(fd));
        script_(connection, number);
      });
    }
  }

  const Script script_;
  int port_ = 0;
  const UniqueFd fd_;
  std::atomic<int> accepted_{0};
  std::vector<std::thread> connections_;  // of thread_, until that is joined
  std::thread thread_;
};

}  // namespace kvkeep
