#include "tiers/host/numa.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <map>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr int kMostNodes = 1024;  // as the kernel's largest CONFIG_NODES_SHIFT
constexpr size_t kBitsOfWord = 8 * sizeof(unsigned long);
using NodeMask = std::array<unsigned long, kMostNodes / kBitsOfWord>;

constexpr int kMostCpus = 8192;  // as the kernel's largest CONFIG_NR_CPUS
using CpuMask = std::array<cpu_set_t, kMostCpus / CPU_SETSIZE>;

// "0-1,3" as 0, 1, 3. Nothing for what is no such list, or has a number of `end` or above.
std::vector<int> ParseList(absl::string_view list, int end) {
  std::vector<int> numbers;
  for (const absl::string_view part : absl::StrSplit(list, ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
        first < 0 || last < first || last >= end) {
      return {};
    }
    for (int number = first; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

std::string ReadNodeFile(absl::string_view name) {
  std::string line;
  std::ifstream file(absl::StrCat("/sys/devices/system/node/", name));
  std::getline(file, line);
  return line;
}

NodeMask MaskOf(const std::vector<int>& nodes) {
  NodeMask mask{};
  for (const int node : nodes) {
    KVKEEP_CHECK(node >= 0 && node < kMostNodes);
    mask[static_cast<size_t>(node) / kBitsOfWord] |= 1ul << static_cast<size_t>(node) % kBitsOfWord;
  }
  return mask;
}

// System calls by number: libnuma would be one more library for three of them.
class KernelNuma final : public Numa {
 public:
  std::vector<int> Nodes() const override {
    std::ifstream status("/proc/self/status");
    constexpr absl::string_view kName = "Mems_allowed_list:";
    for (std::string line; std::getline(status, line);) {
      absl::string_view rest = line;
      if (!absl::ConsumePrefix(&rest, kName)) continue;
      return NodesToUse(rest, ReadNodeFile("has_cpu"));
    }
    return {};
  }
  bool HasPolicy() const override {
    int mode = MPOL_DEFAULT;
    return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 && mode != MPOL_DEFAULT;
  }
  absl::Status Prefer(std::span<std::byte> memory, int node) override {
    return Bind(memory, MPOL_PREFERRED, {node});
  }
  absl::Status Interleave(std::span<std::byte> memory, const std::vector<int>& nodes) override {
    return Bind(memory, MPOL_INTERLEAVE, nodes);
  }
  absl::Status AskNothing(std::span<std::byte> memory) override {
    return Bind(memory, MPOL_DEFAULT, {});
  }
  std::vector<std::optional<int>> NodesOf(std::span<std::byte* const> pages) const override {
    std::vector<std::optional<int>> nodes(pages.size());
    std::vector<void*> addresses(pages.begin(), pages.end());
    std::vector<int> found(pages.size(), -ENOENT);
    if (syscall(SYS_move_pages, 0, pages.size(), addresses.data(), nullptr, found.data(), 0) != 0) {
      return nodes;
    }
    for (size_t i = 0; i < pages.size(); ++i) {
      if (found[i] >= 0) nodes[i] = found[i];
    }
    return nodes;
  }
  absl::Status RunOn(int node, int least_cpus) override {
    CpuMask of_process{}, mask{};
    if (sched_getaffinity(getpid(), sizeof(of_process), of_process.data()) != 0) {
      return absl::ErrnoToStatus(errno, "sched_getaffinity");
    }
    const std::string cpus = ReadNodeFile(absl::StrCat("node", node, "/cpulist"));
    int count = 0;
    for (const int cpu : ParseList(cpus, kMostCpus)) {
      if (!CPU_ISSET_S(cpu, sizeof(of_process), of_process.data())) continue;
      CPU_SET_S(cpu, sizeof(mask), mask.data());
      ++count;
    }
    if (count < std::max(least_cpus, 1)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the process may use ", count, " CPUs of node ", node, ", of ", least_cpus, " wanted"));
    }
    if (sched_setaffinity(0, sizeof(mask), mask.data()) == 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "sched_setaffinity");
  }

 private:
  static absl::Status Bind(std::span<std::byte> memory, int mode, const std::vector<int>& nodes) {
    const NodeMask mask = MaskOf(nodes);
    // The kernel takes one bit less than it is told of.
    if (syscall(SYS_mbind, memory.data(), memory.size(), mode, mask.data(), kMostNodes + 1, 0) ==
        0) {
      return absl::OkStatus();
    }
    return absl::ErrnoToStatus(errno, "mbind");
  }
};

}  // namespace

Numa& RealNuma() {
  static KernelNuma numa;
  return numa;
}

std::vector<int> ParseNodeList(absl::string_view list) { return ParseList(list, kMostNodes); }

std::vector<int> NodesToUse(absl::string_view allowed, absl::string_view with_cpus) {
  std::vector<int> nodes = ParseNodeList(absl::StripAsciiWhitespace(allowed));
  const std::vector<int> known = ParseNodeList(absl::StripAsciiWhitespace(with_cpus));
  if (known.empty()) return nodes;
  std::erase_if(nodes, [&known](int node) {
    return std::find(known.begin(), known.end(), node) == known.end();
  });
  return nodes;
}

NumaPlacement::NumaPlacement(Numa* numa, NumaChoice choice)
    : numa_(*numa), nodes_(numa->Nodes()), what_([&] {
        if (nodes_.size() <= 1) return What::kOneNode;
        switch (choice) {
          case NumaChoice::kAuto:
            return numa->HasPolicy() ? What::kOwnPolicy : What::kSpread;
          case NumaChoice::kOff:
            return What::kOff;
          case NumaChoice::kSpread:
            return What::kSpread;
          case NumaChoice::kInterleave:
            return What::kInterleave;
        }
        return What::kOff;
      }()) {}

void NumaPlacement::Place(size_t segment, std::span<std::byte> memory, bool reused) {
  absl::Status placed;
  switch (what_) {
    case What::kOneNode:
      break;
    case What::kOff:
    case What::kOwnPolicy:
      // Where the kernel refuses that, there is mostly nothing to take back.
      if (reused) numa_.AskNothing(memory).IgnoreError();
      break;
    case What::kSpread:
      placed = numa_.Prefer(memory, nodes_[segment % nodes_.size()]);
      break;
    case What::kInterleave:
      placed = numa_.Interleave(memory, nodes_);
      break;
  }
  if (!placed.ok()) refused_bytes_ += memory.size();
}

std::vector<int> NumaPlacement::spread_over() const {
  return what_ == What::kSpread ? nodes_ : std::vector<int>();
}

std::optional<int> NumaPlacement::NodeOf(size_t segment) const {
  if (what_ != What::kSpread || refused_bytes_ > 0) return std::nullopt;
  return nodes_[segment % nodes_.size()];
}

std::string NumaPlacement::describe(std::span<std::byte* const> first_pages) const {
  std::string text;
  const std::string nodes = absl::StrJoin(nodes_, ",");
  switch (what_) {
    case What::kOneNode:
      return text;
    case What::kOff:
      text = "NUMA: segments where the kernel puts them, as g2.numa is off";
      break;
    case What::kOwnPolicy:
      text = "NUMA: segments by the policy with which the daemon was started";
      break;
    case What::kSpread:
      text = absl::StrCat("NUMA: segments spread over nodes ", nodes);
      break;
    case What::kInterleave:
      text = absl::StrCat("NUMA: pages interleaved over nodes ", nodes);
      break;
  }
  std::map<int, size_t> counts;
  for (const std::optional<int> node : numa_.NodesOf(first_pages)) {
    if (node.has_value()) ++counts[*node];
  }
  if (what_ != What::kInterleave && !counts.empty()) {
    absl::StrAppend(&text, " (",
                    absl::StrJoin(counts, ", ",
                                  [](std::string* out, const auto& one) {
                                    absl::StrAppend(out, one.first, ": ", one.second);
                                  }),
                    ")");
  }
  if (const uint64_t refused = refused_bytes_; refused > 0) {
    absl::StrAppend(&text, ", the kernel refused it for ", refused >> 20, " MiB");
  }
  return text;
}

}  // namespace kvkeep
