#include "tools/compare/about.h"

#include <sys/utsname.h>

#include <fstream>
#include <thread>

#include "tiers/base/units.h"
#include "tools/bench/shared_pages.h"

namespace kvkeep::compare {
namespace {

using bench::Json;

constexpr uint64_t kTriedBytes = 8 * kMiB;

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "";
}

// What the arena is of, and the regions: memory that is made as they are.
std::string SharedPageKind() {
  const auto pages = bench::SharedPages::Create(kTriedBytes, "");
  if (!pages.ok()) return "unknown";
  return pages->huge_page_bytes() > 0 ? "2 MiB" : "4 KiB";
}

// Of memory that nobody asked for huge pages for, as fio's buffers.
std::string OrdinaryPageKind() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string words;
  std::getline(file, words);
  return words.find("[always]") == std::string::npos ? "4 KiB" : "2 MiB where they fit";
}

}  // namespace

Json About(const AboutRun& run) {
  utsname name{};
  uname(&name);
  const NvmePlan& nvme = run.plan.nvme;
  return {{"cpu", CpuName()},
          {"cores", std::thread::hardware_concurrency()},
          {"kernel", std::string(name.release)},
          {"revision", run.revision.empty() ? "unknown" : run.revision},
          {"quick", run.quick},
          {"rounds", run.plan.rounds},
          {"slice_seconds", run.plan.seconds},
          {"capacity_bytes", run.plan.capacity_bytes},
          {"region_bytes", run.plan.region_bytes},
          {"took_seconds", run.took_seconds},
          {"pages", {{"kvkeep", SharedPageKind()}, {"fio", OrdinaryPageKind()}}},
          {"nvme",
           {{"round_bytes", nvme.round_bytes},
            {"read_bytes", nvme.read_bytes()},
            {"g2_bytes", nvme.g2_bytes()},
            {"slice_seconds", nvme.seconds},
            {"fio", "io_uring, O_DIRECT, registered buffers, depth 16, blocks of 1 and 4 MiB"},
            {"file_state",
             "reads: written once, whole; first fills: set apart, never written; overwrites: "
             "written before"}}}};
}

uint64_t AvailableMemoryBytes() {
  std::ifstream info("/proc/meminfo");
  uint64_t kib = 0;
  for (std::string word; info >> word;) {
    if (word == "MemAvailable:" && info >> kib) return kib * kKiB;
  }
  return 0;
}

}  // namespace kvkeep::compare
