// ConnectionTable: facts about connections that we accepted and gave to gRPC by descriptor.
//
// gRPC calls such a connection "fd:N" and closes N only when the last call of the connection is
// over. So inside a call "fd:N" is that call's own connection, and Find returns no other, if it was
// added here before gRPC got the descriptor. Anything that outlives a call must not ask again: a
// session keeps what it found when it was opened.
//
// Entries of closed connections stay until N comes again, or until a limit is reached and a sweep
// finds them, which takes a few percent of the time at most: the table has at most as many entries
// as the process may have descriptors. The kernel is not asked whether N is still that connection:
// N may now be a descriptor that a peer passed, and touching it may wait for the peer
// (guarded_sockets.h). Find is thread-safe; Add is for one thread.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/strings/numbers.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/sockets/guarded_sockets.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

template <typename T>
class ConnectionTable {
 public:
  // A limit on the open connections of one socket or address.
  struct Group {
    std::string name;
    size_t limit = 0;
  };

  // `fd`: an open connection, guarded. Returns false, and adds nothing, if one of its groups is
  // full or the number is too high to be guarded.
  bool Add(int fd, const std::vector<Group>& groups, T value) {
    const GuardId guard = GuardOf(fd);
    if (guard == GuardId::kNone) return false;
    Entry entry{{}, guard, std::move(value)};
    for (const Group& group : groups) entry.groups.push_back(group.name);
    Drop(fd);  // the earlier connection with this number is closed
    if (Full(groups)) Sweep();
    if (Full(groups)) return false;
    MutexLock lock(&mu_);
    for (const std::string& group : entry.groups) ++counts_[group];
    entries_.insert_or_assign(fd, std::move(entry));
    return true;
  }
  // Returns whether one more connection would be too many for this group.
  bool Full(const Group& group) const {
    MutexLock lock(&mu_);
    const auto found = counts_.find(group.name);
    return found != counts_.end() && found->second >= group.limit;
  }

  // Returns the value of the connection that gRPC calls `peer` inside a call; none if it was not
  // added here.
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
    GuardId guard = GuardId::kNone;
    T value;
  };

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

  // Takes a bounded share of the time, even if a client connects in a loop while all are open.
  void Sweep() {
    const auto began = std::chrono::steady_clock::now();
    if (began < next_sweep_) return;
    DropClosed();
    const auto took = std::chrono::steady_clock::now() - began;
    if (took > std::chrono::microseconds(100)) next_sweep_ = began + kSweepShare * took;
  }

  void DropClosed() {
    std::vector<std::pair<int, GuardId>> all;
    {
      MutexLock lock(&mu_);
      for (const auto& [fd, entry] : entries_) all.emplace_back(fd, entry.guard);
    }
    for (const auto& [fd, guard] : all) {
      if (GuardOf(fd) != guard) Drop(fd);
    }
  }

  static constexpr int kSweepShare = 25;  // sweeps take one part in this many of the time

  std::chrono::steady_clock::time_point next_sweep_;  // Add's thread
  mutable Mutex mu_;
  absl::flat_hash_map<int, Entry> entries_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, size_t> counts_ ABSL_GUARDED_BY(mu_);  // entries, by group
};

}  // namespace kvkeep
