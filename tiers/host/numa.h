// Numa: the seam to the machine's NUMA nodes, and where G2's segments go among them.
//
// RealNuma asks the kernel; tests have FakeNuma (tests/fakes). A policy is a preference: a node
// whose memory is used up never makes G2 fail, its segments take memory of another node.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvkeep {

class Numa {
 public:
  virtual ~Numa() = default;
  // Numbers of the nodes whose memory this process may use and that have CPUs, in order: not those
  // of a GPU's or of CXL memory. One or none: there is nothing to choose.
  virtual std::vector<int> Nodes() const = 0;
  // Returns whether the process was started with a memory policy (numactl, NUMAPolicy=).
  virtual bool HasPolicy() const = 0;
  // Pages of this mapping that are taken from now on come from the node if it has any, or from
  // those nodes in turn. REQUIRES: a mapping that begins with a page.
  virtual absl::Status Prefer(std::span<std::byte> memory, int node) = 0;
  virtual absl::Status Interleave(std::span<std::byte> memory, const std::vector<int>& nodes) = 0;
  // Takes back what was asked for this mapping, and for its file by an earlier process.
  virtual absl::Status AskNothing(std::span<std::byte> memory) = 0;
  // Returns for each of these pages the node where it lies; none: it is not there, or not known.
  virtual std::vector<std::optional<int>> NodesOf(std::span<std::byte* const> pages) const = 0;
  // Keeps the calling thread, and threads that it starts later, on those CPUs of the node that the
  // process may use. An error changes nothing: these are fewer than `least_cpus`, or the kernel
  // refuses.
  virtual absl::Status RunOn(int node, int least_cpus) = 0;
};

// Stateless: nobody owns it.
Numa& RealNuma();
// "0-1,3" as 0, 1, 3. Nothing for what is no such list, or names a node above 1023.
std::vector<int> ParseNodeList(absl::string_view list);
// Returns the nodes of `allowed` that are in `with_cpus` too, which is empty if the kernel does not
// say.
std::vector<int> NodesToUse(absl::string_view allowed, absl::string_view with_cpus);

enum class NumaChoice {
  kAuto,        // spread, unless the process was started with a policy
  kOff,         // where the kernel puts it
  kSpread,      // whole segments, each on the next node
  kInterleave,  // pages of each segment, over all nodes in turn
};

// Where the segments of one arena go. Thread-safe.
class NumaPlacement {
 public:
  NumaPlacement(Numa* numa, NumaChoice choice);

  // To be called before the segment's memory is taken. `reused`: an earlier start may have asked.
  // If the kernel refuses, the memory lies where the kernel puts it.
  void Place(size_t segment, std::span<std::byte> memory, bool reused);

  // Returns the nodes over which whole segments are spread; empty: they are not.
  std::vector<int> spread_over() const;
  // Returns the node that the segment is to lie on. None if whole segments are not spread, or the
  // kernel has refused it for some. Memory of a full node, or kept from an earlier start, may lie
  // elsewhere.
  std::optional<int> NodeOf(size_t segment) const;
  uint64_t refused_bytes() const { return refused_bytes_; }
  // Returns what was chosen, why, and how many segments lie on which node by their first pages:
  // "NUMA: segments spread over nodes 0,1 (0: 12, 1: 12)". Empty if there is one node.
  std::string describe(std::span<std::byte* const> first_pages) const;

 private:
  enum class What { kOneNode, kOff, kOwnPolicy, kSpread, kInterleave };

  Numa& numa_;
  const std::vector<int> nodes_;
  const What what_;
  std::atomic<uint64_t> refused_bytes_{0};
};

}  // namespace kvkeep
