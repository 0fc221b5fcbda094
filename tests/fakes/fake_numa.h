// FakeNuma: a machine of several NUMA nodes, whose memory is on the last requested node. It notes
// which nodes threads asked to run on. It may refuse either.
#pragma once

#include <map>

#include "tiers/base/mutex.h"
#include "tiers/host/numa.h"

namespace kvkeep {

class FakeNuma final : public Numa {
 public:
  explicit FakeNuma(std::vector<int> nodes) : nodes_(std::move(nodes)) {}

  std::vector<int> Nodes() const override { return nodes_; }
  bool HasPolicy() const override { return has_policy; }
  absl::Status Prefer(std::span<std::byte> memory, int node) override {
    if (refuses) return absl::PermissionDeniedError("mbind");
    MutexLock lock(&mu_);
    node_of_[memory.data()] = node;
    return absl::OkStatus();
  }
  absl::Status Interleave(std::span<std::byte> memory, const std::vector<int>& nodes) override {
    if (refuses) return absl::PermissionDeniedError("mbind");
    MutexLock lock(&mu_);
    interleaved_[memory.data()] = nodes;
    return absl::OkStatus();
  }
  absl::Status AskNothing(std::span<std::byte> memory) override {
    if (refuses) return absl::PermissionDeniedError("mbind");
    MutexLock lock(&mu_);
    node_of_.erase(memory.data());
    interleaved_.erase(memory.data());
    ++taken_back_;
    return absl::OkStatus();
  }
  std::vector<std::optional<int>> NodesOf(std::span<std::byte* const> pages) const override {
    std::vector<std::optional<int>> nodes;
    MutexLock lock(&mu_);
    for (std::byte* const page : pages) {
      const auto found = node_of_.find(page);
      nodes.push_back(found == node_of_.end() ? std::nullopt : std::optional(found->second));
    }
    return nodes;
  }
  absl::Status RunOn(int node, int least_cpus) override {
    MutexLock lock(&mu_);
    if (least_cpus > cpus_of_node) return absl::FailedPreconditionError("too few CPUs");
    ++threads_on_[node];
    return refuses_threads ? absl::PermissionDeniedError("sched_setaffinity") : absl::OkStatus();
  }
  // How many threads asked to run on each node, and there were CPUs enough.
  std::map<int, int> threads_on() const {
    MutexLock lock(&mu_);
    return threads_on_;
  }
  size_t interleaved() const {
    MutexLock lock(&mu_);
    return interleaved_.size();
  }
  // Number of calls of AskNothing.
  size_t taken_back() const {
    MutexLock lock(&mu_);
    return taken_back_;
  }

  // To be set before it is used.
  bool has_policy = false, refuses = false, refuses_threads = false;
  int cpus_of_node = 1024;  // of each

 private:
  const std::vector<int> nodes_;
  mutable Mutex mu_;
  std::map<const std::byte*, int> node_of_ ABSL_GUARDED_BY(mu_);
  std::map<const std::byte*, std::vector<int>> interleaved_ ABSL_GUARDED_BY(mu_);
  size_t taken_back_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int, int> threads_on_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
