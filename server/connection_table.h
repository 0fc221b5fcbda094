// ConnectionTable: what is known of connections that we accepted and gave to gRPC by descriptor.
//
// gRPC calls such a connection "fd:N" and closes N only when the last call of the connection is
// over. So inside a call "fd:N" is that call's own connection and Find tells of no other, if it was
// added here before gRPC got the descriptor. What outlives a call must not ask again: a session
// keeps what it found when it was opened.
//
// Nobody says when gRPC closes a descriptor. Entries of closed ones stay until N comes again, or
// until a limit is reached and they are looked for, which takes a few percent of the time at most:
// the table has at most as many entries as the process may have descriptors. Whether N is still
// that socket is asked of the socket layer: by now it may be a file, of which fstat(2) may wait for
// its server. Find is thread-safe; Add is for one thread.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/strings/numbers.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tiers/base/mutex.h"

namespace kvkeep {

template <typename T>
class ConnectionTable {
 public:
  // So many connections may be open of what has this name: a socket, an address.
  struct Group {
    std::string name;
    size_t limit = 0;
  };

  // `fd`: open, an accepted connection. False, and nothing added: one of its groups is full.
  bool Add(int fd, const std::vector<Group>& groups, T value) {
    const std::optional<uint64_t> cookie = CookieOf(fd);
    if (!cookie.has_value()) return false;
    Entry entry{{}, *cookie, std::move(value)};
    for (const Group& group : groups) entry.groups.push_back(group.name);
    Drop(fd);  // its number is used again: that one is closed
    if (Full(groups)) Sweep();
    if (Full(groups)) return false;
    MutexLock lock(&mu_);
    for (const std::string& group : entry.groups) ++counts_[group];
    entries_.insert_or_assign(fd, std::move(entry));
    return true;
  }
  // Whether `fd`, were it added now, would be one too many of this group.
  bool Full(const Group& group) const {
    MutexLock lock(&mu_);
    const auto found = counts_.find(group.name);
    return found != counts_.end() && found->second >= group.limit;
  }

  // `peer`: as gRPC says it inside a call. None: not a connection that was added here.
  std::optional<T> Find(absl::string_view peer) const {
    int fd = -1;
    if (!absl::ConsumePrefix(&peer, "fd:") || !absl::SimpleAtoi(peer, &fd)) return std::nullopt;
    MutexLock lock(&mu_);
    const auto found = entries_.find(fd);
    if (found == entries_.end()) return std::nullopt;
    return found->second.value;
  }

 private:
  struct Entry {
    std::vector<std::string> groups;
    uint64_t cookie = 0;  // of the socket: another one with the same number differs
    T value;
  };

  // Nothing: no socket.
  static std::optional<uint64_t> CookieOf(int fd) {
    uint64_t cookie = 0;
    socklen_t bytes = sizeof(cookie);
    if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) != 0) return std::nullopt;
    return cookie;
  }

  bool Full(const std::vector<Group>& groups) const {
    return std::any_of(groups.begin(), groups.end(),
                       [this](const Group& group) { return Full(group); });
  }

  void Drop(int fd) {
    MutexLock lock(&mu_);
    const auto found = entries_.find(fd);
    if (found == entries_.end()) return;
    for (const std::string& group : found->second.groups) {
      const auto count = counts_.find(group);
      if (--count->second == 0) counts_.erase(count);
    }
    entries_.erase(found);
  }

  // Whoever connects in a loop while all are open must not keep us busy with looking.
  void Sweep() {
    const auto began = std::chrono::steady_clock::now();
    if (began < next_sweep_) return;
    DropClosed();
    const auto took = std::chrono::steady_clock::now() - began;
    if (took > std::chrono::microseconds(100)) next_sweep_ = began + kSweepShare * took;
  }

  void DropClosed() {
    std::vector<std::pair<int, uint64_t>> all;
    {
      MutexLock lock(&mu_);
      for (const auto& [fd, entry] : entries_) all.emplace_back(fd, entry.cookie);
    }
    for (const auto& [fd, cookie] : all) {
      if (CookieOf(fd) != cookie) Drop(fd);
    }
  }

  static constexpr int kSweepShare = 25;  // of the time, one part

  std::chrono::steady_clock::time_point next_sweep_;  // Add's thread
  mutable Mutex mu_;
  absl::flat_hash_map<int, Entry> entries_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, size_t> counts_ ABSL_GUARDED_BY(mu_);  // entries, by group
};

}  // namespace kvkeep
