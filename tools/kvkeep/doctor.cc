#include "tools/kvkeep/doctor.h"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/strip.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "tiers/base/page_bytes.h"
#include "tiers/base/units.h"
#include "tiers/host/kernel_facts.h"
#include "tiers/nvme/device_names.h"
#include "tools/kvkeep/doctor_gpu.h"
#include "tools/kvkeep/doctor_service.h"
#include "tools/kvkeep/doctor_sockets.h"
#include "tools/kvkeep/plan.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

using State = Finding::State;

constexpr int64_t kFirstSaneSecond = 1'704'067'200;  // 2024: before this code was written
constexpr uint64_t kBesideArenaBytes = 256 * kMiB;   // what the daemon takes beside G2

// Returns nothing if the file does not exist.
std::optional<std::string> ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(line));
}

Finding Pages(const Machine& machine) {
  Finding finding{.subject = "pages",
                  .found = absl::StrCat("of ", FormatBytes(machine.page_bytes))};
  if (CheckPageSize(machine.page_bytes).ok()) return finding;
  finding.state = State::kFail;
  finding.to_do = "boot a kernel with pages of 4 to 64 KiB: the daemon does not start here";
  return finding;
}

Finding HugePages(const Config& config, const Machine& machine) {
  Finding finding{.subject = "huge pages"};
  if (config.g2.arena == ArenaChoice::kMount) {
    finding.found = "pages of the mount " + config.g2.arena_dir;
    return finding;
  }
  const std::string path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const std::string mode = ShmemEnabled(machine.root);
  finding.found = absl::StrCat("for shared memory: ", mode);
  if (mode == "advise" || mode == "always" || mode == "within_size" || mode == "force") {
    return finding;
  }
  finding.state = State::kWarn;
  finding.to_do =
      absl::StrCat("G2 will use pages of ", FormatBytes(machine.page_bytes), ": echo advise > ",
                   path, ", or give it a mount with huge pages (deploy/README.md)");
  return finding;
}

Finding LockedMemory(const Config& config, const Machine& machine) {
  Finding finding{.subject = "locked memory"};
  const bool unlimited = machine.locked_limit == UINT64_MAX;
  finding.found =
      unlimited ? "unlimited" : absl::StrCat("at most ", FormatBytes(machine.locked_limit));
  // Each device's ring has all of G2 registered, and the kernel counts each.
  const uint64_t rings = config.g3.paths.size();
  if (unlimited || rings == 0 || machine.locked_limit / rings >= config.g2.capacity_bytes) {
    return finding;
  }
  finding.state = State::kWarn;
  finding.to_do = absl::StrCat(
      "I/O on G2's ", FormatBytes(config.g2.capacity_bytes),
      ", once for each device, will not be registered and costs more CPU: LimitMEMLOCK=infinity, "
      "or ulimit -l unlimited");
  return finding;
}

// Without a mount each segment of G2 takes a descriptor in the daemon; clients receive them one
// packet after the other.
Finding Descriptors(const Config& config, const Machine& machine) {
  constexpr uint64_t kOthers = 512;  // devices, index, connections
  const uint64_t segments = DivideRoundUp(config.g2.capacity_bytes, config.g2.segment_bytes);
  const uint64_t wanted = (config.g2.arena == ArenaChoice::kMount ? 0 : segments) + kOthers;
  uint64_t limit = 0;
  const std::string said = ServiceSetting(machine.root, "LimitNOFILE").value_or("");
  if (!absl::SimpleAtoi(said, &limit)) limit = machine.descriptor_limit;
  Finding finding{.subject = "descriptors"};
  finding.found = absl::StrCat(limit == UINT64_MAX ? "no limit" : absl::StrCat("at most ", limit),
                               ", the daemon needs ", wanted, ", ", segments, " segments of G2");
  if (limit >= wanted) return finding;
  finding.state = State::kFail;
  finding.to_do = absl::StrCat("raise RLIMIT_NOFILE (LimitNOFILE=, ulimit -n), or have fewer ",
                               "segments: a larger g2.segment_bytes");
  return finding;
}

Finding Memory(const Config& config, const Machine& machine) {
  Finding finding{.subject = "memory"};
  const std::optional<uint64_t> available = MemAvailable(machine.root);
  if (!available.has_value()) {
    finding.state = State::kWarn;
    finding.found = "unknown: /proc/meminfo does not report it";
    finding.to_do = "mount /proc";
    return finding;
  }
  const uint64_t wanted = config.g2.capacity_bytes + kBesideArenaBytes;
  finding.found = absl::StrCat(FormatBytes(*available), " available, G2 takes ",
                               FormatBytes(config.g2.capacity_bytes));
  if (*available >= wanted) return finding;
  finding.state = State::kFail;
  finding.to_do =
      "lower g2.capacity, or free memory; ignore this if a running daemon has the memory already";
  return finding;
}

Finding IoUring(const Machine& machine) {
  Finding finding{.subject = "io_uring", .found = "can be used"};
  if (machine.io_uring) return finding;
  const std::string disabled =
      ReadLine(machine.root + "/proc/sys/kernel/io_uring_disabled").value_or("0");
  finding.state = State::kWarn;
  finding.found = "cannot be used";
  finding.to_do =
      disabled != "0"
          ? "threads will do the I/O, at more CPU: set sysctl kernel.io_uring_disabled=0"
          : "threads will do the I/O, at more CPU: use a newer kernel, or a seccomp profile that "
            "allows it";
  return finding;
}

Finding NumaNodes(const Config& config, const Machine& machine) {
  Finding finding{.subject = "NUMA"};
  const std::string nodes =
      ReadLine(machine.root + "/sys/devices/system/node/online").value_or("0");
  finding.found = absl::StrCat("nodes ", nodes);
  if (nodes == "0") return finding;
  switch (config.g2.numa) {
    case PlacementChoice::kAuto:
      absl::StrAppend(
          &finding.found,
          "; G2 is spread over them with its copy threads, or lies by the daemon's numactl");
      return finding;
    case PlacementChoice::kSpread:
      absl::StrAppend(&finding.found, "; G2 is spread over them with its copy threads");
      return finding;
    case PlacementChoice::kInterleave:
      absl::StrAppend(&finding.found, "; G2's pages are interleaved over them");
      return finding;
    case PlacementChoice::kOff:
      break;
  }
  finding.state = State::kWarn;
  absl::StrAppend(&finding.found, "; G2 lies where the kernel puts it");
  finding.to_do =
      "memory of another node is slower: set g2.numa: spread to use all nodes evenly; or bind the "
      "daemon to the node of the GPUs and drives it serves (numactl, or NUMAPolicy= and NUMAMask= "
      "in its unit)";
  return finding;
}

Finding Clock(const Machine& machine) {
  Finding finding{.subject = "clock"};
  const std::string source =
      ReadLine(machine.root + "/sys/devices/system/clocksource/clocksource0/current_clocksource")
          .value_or("unknown");
  finding.found = absl::StrCat(source, machine.clock_is_kept ? ", synchronised" : ", on its own");
  if (machine.now_seconds < kFirstSaneSecond) {
    finding.state = State::kFail;
    finding.to_do = "it is before 2024: set it, as certificates and logs depend on it";
  } else if (source == "hpet" || source == "acpi_pm") {
    finding.state = State::kWarn;
    finding.to_do =
        "reading it is slow, and happens thousands of times a second: boot with clocksource=tsc";
  } else if (!machine.clock_is_kept) {
    finding.state = State::kWarn;
    finding.to_do = "certificates and logs depend on it: run systemd-timesyncd or chrony";
  }
  return finding;
}

// Returns the directory, or the nearest parent that exists.
std::string ExistingParent(const std::string& dir) {
  std::filesystem::path path(dir);
  std::error_code ignored;
  while (!std::filesystem::exists(path, ignored) && path.has_parent_path() &&
         path != path.parent_path()) {
    path = path.parent_path();
  }
  return path.string();
}

Finding Space(const G3PathConfig& path) {
  Finding finding{.subject = absl::StrCat("space of ", path.dir)};
  const std::string parent = ExistingParent(path.dir);
  struct statvfs space {};
  if (statvfs(parent.c_str(), &space) != 0) {
    finding.state = State::kFail;
    finding.found = absl::StrCat(parent, ": ", std::strerror(errno));
    finding.to_do = "mount it, or make the directory for the daemon's user";
    return finding;
  }
  const uint64_t block = space.f_frsize;
  const uint64_t all = space.f_blocks * block, free = space.f_bavail * block;
  finding.found = absl::StrCat(FormatBytes(free), " free of ", FormatBytes(all), ", wanted ",
                               FormatBytes(path.capacity_bytes));
  if (all < path.capacity_bytes) {
    finding.state = State::kFail;
    finding.to_do = "the file system is smaller than the path's capacity: lower it";
  } else if (free < path.capacity_bytes &&
             !std::filesystem::exists(absl::StrCat(path.dir, "/", kSuperblockName))) {
    finding.state = State::kWarn;
    finding.to_do =
        "other files take space there: use a file system of its own, or lower the capacity";
  }
  return finding;
}

Finding DirectIo(const G3PathConfig& path) {
  Finding finding{.subject = absl::StrCat("O_DIRECT on ", path.dir)};
  const std::string parent = ExistingParent(path.dir);
  struct statfs system {};
  if (statfs(parent.c_str(), &system) == 0 && system.f_type == TMPFS_MAGIC) {
    finding.state = State::kFail;
    finding.found = "a tmpfs: memory, no drive";
    finding.to_do = "mount XFS or ext4 there";
    return finding;
  }
  const int fd = open(parent.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  if (fd >= 0) {
    close(fd);
    finding.found = "available";
    return finding;
  }
  const int why = errno;
  finding.found = absl::StrCat(parent, ": ", std::strerror(why));
  if (why == EACCES || why == EPERM || why == EROFS || why == ENOENT) {
    finding.state = why == EROFS ? State::kFail : State::kWarn;
    finding.to_do = "run this as the daemon's user, who must be able to write there";
    return finding;
  }
  finding.state = State::kWarn;
  finding.to_do = "I/O goes through the page cache: use XFS or ext4 on a drive";
  return finding;
}

// Says which changes to the bytes on the paths the checks detect.
Finding Integrity(const Config& config) {
  Finding finding{.subject = "integrity of G3"};
  finding.found = config.encryption.master_key_file.empty()
                      ? "in plain: detects faults, but not bytes planted on a drive; "
                        "encryption.master_key_file detects both"
                      : "encrypted: detects faults, and bytes planted on a drive";
  return finding;
}

bool CanLoadCuda() {
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return false;
  dlclose(library);
  return true;
}

std::string GbPerSecond(double bytes) { return absl::StrFormat("%.2f GB/s", bytes / 1e9); }

Finding SpeedOf(const MeasuredPath& path) {
  Finding finding{.subject = absl::StrCat("speed of ", path.dir)};
  if (!path.speed.ok()) {
    finding.state = State::kWarn;
    finding.found = absl::StrCat("not measured: ", std::string(path.speed.status().message()));
    finding.to_do =
        "use XFS or ext4 with free space, and run this as the daemon's user; or lower --disk-bytes";
    return finding;
  }
  finding.found = absl::StrCat("writes ", GbPerSecond(path.speed->write_bytes_per_second),
                               ", reads ", GbPerSecond(path.speed->read_bytes_per_second), ", by ",
                               FormatBytes(path.speed->written_bytes));
  return finding;
}

Finding Reads(double measured) {
  const double supposed = PlanAssumptions{}.g3_bytes_per_second;
  Finding finding{
      .subject = "reads of G3",
      .found = absl::StrCat(GbPerSecond(measured), " for all paths, kvkeep plan assumes ",
                            GbPerSecond(supposed))};
  if (measured >= supposed) return finding;
  finding.state = State::kWarn;
  finding.to_do = absl::StrFormat(
      "see whether a fetch beats recomputing: kvkeep plan --g3-gb-s %.2f", measured / 1e9);
  return finding;
}

Finding Writes(const G3Config& g3, double measured) {
  const auto wanted = static_cast<double>(WriteBudget(g3));
  Finding finding{
      .subject = "writes of G3",
      .found = absl::StrCat(GbPerSecond(measured), " for all paths, the write budget is ",
                            GbPerSecond(wanted))};
  if (measured >= wanted) return finding;
  finding.state = State::kWarn;
  finding.to_do =
      "chunks will wait for their write, and may be evicted unwritten: lower the write budget, or "
      "add a path";
  return finding;
}

bool CanSetUpRing() {
  io_uring_params parameters{};
  const long fd = syscall(SYS_io_uring_setup, 4, &parameters);
  if (fd < 0) return false;
  close(static_cast<int>(fd));
  return true;
}

}  // namespace

const char* StateWord(Finding::State state) {
  return state == State::kOk ? "ok" : state == State::kWarn ? "warn" : "fail";
}

Machine Machine::This() {
  Machine machine;
  machine.page_bytes = PageBytes();
  rlimit locked{};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  machine.locked_limit = locked.rlim_cur == RLIM_INFINITY ? UINT64_MAX : locked.rlim_cur;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  machine.descriptor_limit = files.rlim_max == RLIM_INFINITY ? UINT64_MAX : files.rlim_max;
  machine.io_uring = CanSetUpRing();
  timex clock{};  // only reads
  const int kept = adjtimex(&clock);
  machine.clock_is_kept = kept >= 0 && (clock.status & STA_UNSYNC) == 0;
  machine.now_seconds = std::time(nullptr);
  machine.cuda_driver = CanLoadCuda();
  return machine;
}

std::vector<Finding> Examine(const Config& config, const Machine& machine) {
  std::vector<Finding> findings = {Memory(config, machine),
                                   ExamineServiceMemory(config, machine),
                                   Pages(machine),
                                   HugePages(config, machine),
                                   LockedMemory(config, machine),
                                   Descriptors(config, machine),
                                   IoUring(machine),
                                   NumaNodes(config, machine),
                                   Clock(machine),
                                   ExamineGpus(config, machine)};
  for (Finding& finding : ExamineSockets(config)) findings.push_back(std::move(finding));
  for (const G3PathConfig& path : config.g3.paths) {
    findings.push_back(Space(path));
    findings.push_back(DirectIo(path));
  }
  if (!config.g3.paths.empty()) findings.push_back(Integrity(config));
  return findings;
}

std::vector<MeasuredPath> MeasurePaths(const Config& config, const DiskSpeedOptions& options) {
  std::vector<MeasuredPath> paths;
  for (const G3PathConfig& path : config.g3.paths) {
    paths.push_back({path.dir, MeasureDiskSpeed(ExistingParent(path.dir), options)});
  }
  return paths;
}

std::vector<Finding> JudgeSpeeds(const Config& config, const std::vector<MeasuredPath>& paths) {
  std::vector<Finding> findings;
  double writes = 0, reads = 0;
  bool all = !paths.empty();
  for (const MeasuredPath& path : paths) {
    findings.push_back(SpeedOf(path));
    all = all && path.speed.ok();
    if (!path.speed.ok()) continue;
    writes += path.speed->write_bytes_per_second;
    reads += path.speed->read_bytes_per_second;
  }
  if (!all) return findings;  // no sum to judge by
  findings.push_back(Reads(reads));
  if (config.g3.admission == "write_budget") findings.push_back(Writes(config.g3, writes));
  return findings;
}

}  // namespace kvkeep::tools
