// kvkeep-devices-bench: speed at which a store reads from two drives and from one, and writes back
// to them.
//
// A measuring machine has one drive, so the drives are simulated: in memory, with given latency and
// bandwidth (simulated_device.h), under a store with its threads and verification. Rounds of one
// drive and of two alternate. --json prints what `kvkeep-bench table --section devices` judges.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/bench/store/simulated_node.h"
#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

struct Asked {
  uint64_t bytes = 384 * kMiB;
  int rounds = 9;
  double seconds = 1;
  bool json = false;
};

std::string List(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

int Run(const Asked& asked) {
  // GB/s; [0]: of one drive, [1]: of two.
  std::unique_ptr<SimulatedNode> nodes[2];
  double written[2];
  std::vector<double> read[2];
  const SimulatedNode::Options drive;
  for (int i : {0, 1}) {
    nodes[i] = SimulatedNode::Start({.drives = i + 1, .data_bytes = asked.bytes}).value();
    written[i] = nodes[i]->Fill().value();
  }
  for (int round = 0; round < asked.rounds; ++round) {
    for (int i : {0, 1}) read[i].push_back(nodes[i]->Read(asked.seconds).value());
    if (asked.json) continue;
    std::printf("read: one drive %.3f GB/s, two %.3f (%.2f times)\n", read[0].back(),
                read[1].back(), read[1].back() / read[0].back());
  }
  if (asked.json) {
    std::printf(
        "{\"bytes_per_second\": %.0f, \"latency_us\": %ld, \"read_one\": %s, "
        "\"read_two\": %s, \"written_one\": %.4f, \"written_two\": %.4f}\n",
        drive.bytes_per_second, static_cast<long>(drive.latency.count() / 1000),
        List(read[0]).c_str(), List(read[1]).c_str(), written[0], written[1]);
  } else {
    std::printf("write-back: one drive %.3f GB/s, two %.3f\n", written[0], written[1]);
  }
  std::fflush(stdout);
  std::_Exit(0);  // stores end with their process here: nothing is waited for
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  kvkeep::Asked asked;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--json") == 0) {
      asked.json = true;
    } else if (more && std::strcmp(argv[i], "--mib") == 0) {
      asked.bytes = std::strtoull(argv[++i], nullptr, 10) * kvkeep::kMiB;
    } else if (more && std::strcmp(argv[i], "--rounds") == 0) {
      asked.rounds = std::atoi(argv[++i]);
    } else if (more && std::strcmp(argv[i], "--seconds") == 0) {
      asked.seconds = std::atof(argv[++i]);
    } else {
      std::fprintf(stderr, "kvkeep-devices-bench [--mib N] [--rounds N] [--seconds S] [--json]\n");
      return 2;
    }
  }
  if (asked.bytes < 48 * kvkeep::kMiB) asked.bytes = 48 * kvkeep::kMiB;
  return kvkeep::Run(asked);
}
