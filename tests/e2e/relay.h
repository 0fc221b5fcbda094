// Relay: forwards TCP between a client and a daemon, and can act like a machine that lost its
// power: from then on it takes and drops bytes, and closes no connection.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::e2e {

class Relay {
 public:
  explicit Relay(int to_port) : to_port_(to_port), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = At(port_);
    REQUIRE(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(listener_.get(), 16) == 0);
    thread_ = std::thread([this] { Run(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Cuts the power.
  void Vanish() { vanished_ = true; }

 private:
  static sockaddr_in At(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Run() {
    constexpr int kLookMs = 5;  // between checks for a stop
    while (!stop_) {
      std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
      for (const auto& [one, other] : pairs_) {
        polled.push_back({one.get(), POLLIN, 0});
        polled.push_back({other.get(), POLLIN, 0});
      }
      if (poll(polled.data(), polled.size(), kLookMs) <= 0) continue;
      for (size_t i = polled.size() - 1; i > 0; --i) {
        const size_t pair = (i - 1) / 2;
        const bool from_first = i % 2 == 1;
        if (polled[i].revents != 0 && !Pass(pair, from_first)) {
          pairs_.erase(pairs_.begin() + static_cast<int64_t>(pair));
          break;  // the indices are others now
        }
      }
      if (polled[0].revents != 0) Accept();
    }
  }

  void Accept() {
    UniqueFd client(accept(listener_.get(), nullptr, nullptr));
    if (vanished_) {
      lost_.push_back(std::move(client));  // it gets no answers
      return;
    }
    UniqueFd daemon(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = At(to_port_);
    if (connect(daemon.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return;
    pairs_.emplace_back(std::move(client), std::move(daemon));
  }

  // Returns false if one side has closed.
  bool Pass(size_t pair, bool from_first) {
    const int from = from_first ? pairs_[pair].first.get() : pairs_[pair].second.get();
    const int to = from_first ? pairs_[pair].second.get() : pairs_[pair].first.get();
    std::array<char, 65536> bytes;
    const ssize_t got = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    if (vanished_) return true;
    return send(to, bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL) == got;
  }

  const int to_port_;
  const int port_ = FreePort();
  const UniqueFd listener_;
  std::vector<std::pair<UniqueFd, UniqueFd>> pairs_;
  std::vector<UniqueFd> lost_;
  std::atomic<bool> stop_{false}, vanished_{false};
  std::thread thread_;
};

}  // namespace kvkeep::e2e
