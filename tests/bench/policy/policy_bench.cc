// kvkeep-policy-bench: costs of each eviction policy: CPU time a chunk of a request, CPU time a
// chunk that comes in (with the eviction that makes room), and memory a chunk of a full tier.
//
// The load is policy_load.h's. Each policy runs in a process of its own. A request is a lookup of
// 512 keys, which tells the policy of 512 links.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/tiers/policy/policy_load.h"
#include "tests/tiers/policy/resident_bytes.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

double MicrosOf(MonotonicTime time, uint64_t of) {
  return static_cast<double>(time.count()) / 1e3 / static_cast<double>(std::max<uint64_t>(1, of));
}

void Report(const std::string& name, uint32_t chunks) {
  PolicyLoad load(chunks);
  const uint64_t before = ResidentBytes();
  load.Use(name);
  load.Fill();
  const double bytes = static_cast<double>(ResidentBytes() - before) / chunks;
  const PolicyLoad::Cost cost = load.Measure(4 * uint64_t{chunks});
  const double told = MicrosOf(cost.telling, cost.told);
  std::printf(
      "%-8s %7.3f us a chunk told  %7.1f us a request of 512  %7.3f us a chunk that comes "
      "in  %5.0f bytes a chunk\n",
      name.c_str(), told, 512 * told, MicrosOf(cost.inserting, cost.inserted), bytes);
  std::fflush(stdout);
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  uint32_t chunks = 500'000;
  if (argc == 3 && std::strcmp(argv[1], "--chunks") == 0) {
    chunks = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  } else if (argc != 1) {
    std::fprintf(stderr, "kvkeep-policy-bench [--chunks N]\n");
    return 2;
  }
  if (chunks < 1000) chunks = 1000;
  std::printf("%u chunks in the tier\n", chunks);
  std::fflush(stdout);
  for (const std::string& name : kvkeep::EvictionPolicyNames()) {
    const pid_t child = fork();
    KVKEEP_CHECK(child >= 0);
    if (child == 0) {
      kvkeep::Report(name, chunks);
      std::_Exit(0);
    }
    int status = 0;
    KVKEEP_CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
}
