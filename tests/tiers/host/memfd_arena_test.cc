#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/tiers/host/child_process.h"
#include "tests/tiers/host/client_attacks.h"
#include "tests/tiers/host/vm_flags.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/host/arena.h"
#include "tiers/host/kernel_facts.h"

namespace kvkeep {
namespace {

ArenaOptions MemfdOptions(uint64_t capacity_bytes) {
  ArenaOptions options;
  options.capacity_bytes = capacity_bytes;
  options.segment_bytes = 2 * kMiB;
  options.backing = ArenaBacking::kMemfd;
  return options;
}

std::unique_ptr<Arena> MakeArena(uint64_t capacity_bytes) {
  auto arena = CreateArena(MemfdOptions(capacity_bytes), nullptr);
  INFO(arena.status());
  REQUIRE(arena.ok());
  return *std::move(arena);
}

}  // namespace

TEST_CASE("an arena refuses options out of their limits and names the limit") {
  const auto message = [](const ArenaOptions& options) {
    const absl::Status status = CreateArena(options, nullptr).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  CHECK(message(MemfdOptions(kMiB - 1)) == "capacity_bytes 1048575 is below the least, 1048576");
  CHECK(message(MemfdOptions(0)) == "capacity_bytes 0 is below the least, 1048576");
  ArenaOptions options = MemfdOptions(kGiB);
  for (const uint64_t bad : {uint64_t{0}, kMiB, 2 * kMiB + 4096, 2 * kGiB}) {
    options.segment_bytes = bad;
    CHECK(message(options) == absl::StrCat("segment_bytes ", bad,
                                           " must be a multiple of 2097152, at most 1073741824"));
  }
  const uint64_t too_many = 16384 * 2 * kMiB + 1;
  CHECK(message(MemfdOptions(too_many)) ==
        absl::StrCat("capacity_bytes ", too_many,
                     " makes more than 16384 segments of segment_bytes 2097152"));
}

TEST_CASE("pages of 4 to 64 KiB are taken, those of another size refused by name") {
  CHECK(CheckPageSize(PageBytes()).ok());
  for (const uint64_t bytes : {4096, 16384, 65536}) CHECK(CheckPageSize(bytes).ok());
  for (const uint64_t bytes : {2048, 20480, 131072}) {
    const absl::Status refused = CheckPageSize(bytes);
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK(absl::StrContains(refused.message(), absl::StrCat("pages of ", bytes / 1024, " KiB")));
  }
}

TEST_CASE("several threads take an arena's memory, and each segment is told of") {
  std::atomic<uint64_t> taken = 0;
  ArenaOptions options = MemfdOptions(15 * kMiB);
  options.threads = 4;
  options.taken_bytes = &taken;
  const auto arena = CreateArena(options, nullptr).value();
  CHECK(taken == 15 * kMiB);
  REQUIRE(arena->segment_count() == 8);
  for (size_t i = 0; i < 8; ++i) arena->SegmentMemory(i)[0] = static_cast<std::byte>(i);
  for (size_t i = 0; i < 8; ++i) {
    const UniqueFd fd(arena->OpenForClient(i).value());
    char byte = 100;
    CHECK(pread(fd.get(), &byte, 1, 0) == 1);
    CHECK(byte == static_cast<char>(i));
  }
}

TEST_CASE("an arena larger than the machine's memory is refused, not half made") {
  ArenaOptions options = MemfdOptions(15 * kTiB);
  options.segment_bytes = kGiB;
  const absl::Status status = CreateArena(options, nullptr).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(absl::StrContains(status.message(), "15728640 MiB of memory wanted"));
  CHECK(absl::StrContains(status.message(), "lower the capacity"));
}

TEST_CASE("capacity is rounded down to pages and cut into segments, the last one shorter") {
  const uint64_t page = PageBytes();
  struct Case {
    uint64_t asked, capacity;
    size_t segments;
    uint64_t last;
  };
  const Case cases[] = {
      {kMiB, kMiB, 1, kMiB},
      {kMiB + page - 1, kMiB, 1, kMiB},
      {2 * kMiB, 2 * kMiB, 1, 2 * kMiB},
      {2 * kMiB + page - 1, 2 * kMiB, 1, 2 * kMiB},
      {2 * kMiB + page, 2 * kMiB + page, 2, page},
      {6 * kMiB - page, 6 * kMiB - page, 3, 2 * kMiB - page},
  };
  for (const Case& c : cases) {
    INFO("asked " << c.asked);
    const auto arena = MakeArena(c.asked);
    CHECK(arena->capacity_bytes() == c.capacity);
    CHECK(arena->capacity_blocks() == BlockCount(c.capacity / 4096));
    CHECK(arena->segment_blocks() == BlockCount(512));
    REQUIRE(arena->segment_count() == c.segments);
    for (size_t i = 0; i < c.segments; ++i) {
      CHECK(arena->SegmentMemory(i).size() == (i + 1 < c.segments ? 2 * kMiB : c.last));
    }
    CHECK(arena->stats().capacity_bytes == c.capacity);
    CHECK(arena->stats().segments == c.segments);
  }
}

TEST_CASE("Memory gives the blocks of an extent, which are those of its segment") {
  const auto arena = MakeArena(4 * kMiB + 2 * PageBytes());
  const uint64_t blocks = arena->capacity_blocks().value();
  CHECK(blocks == 1024 + 2 * PageBytes() / kBlockBytes);
  const auto memory = [&](uint64_t first, uint64_t count) {
    return arena->Memory({BlockNumber(first), BlockCount(count)});
  };
  CHECK(memory(0, 512).data() == arena->SegmentMemory(0).data());
  CHECK(memory(0, 512).size() == 2 * kMiB);
  CHECK(memory(511, 1).data() == arena->SegmentMemory(0).data() + 511 * 4096);
  CHECK(memory(512, 1).data() == arena->SegmentMemory(1).data());
  CHECK(memory(1024, 2).data() == arena->SegmentMemory(2).data());
  CHECK(memory(1025, 1).size() == 4096);
  // Every block is memory of its own.
  for (uint64_t block = 0; block < blocks; ++block) {
    const auto bytes = memory(block, 1);
    CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
    std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(block % 251 + 1));
  }
  for (uint64_t block = 0; block < blocks; ++block) {
    CHECK(memory(block, 1)[4095] == static_cast<std::byte>(block % 251 + 1));
  }
}

TEST_CASE("an extent outside the arena or across segments is our bug and stops the process") {
  const auto arena = MakeArena(2 * kMiB + 2 * PageBytes());
  const uint64_t end = arena->capacity_blocks().value();
  const Extent bad[] = {
      {BlockNumber(511), BlockCount(2)},      // across segments
      {BlockNumber(end - 1), BlockCount(2)},  // past the end
      {BlockNumber(end), BlockCount(1)},        {BlockNumber(0), BlockCount(0)},
      {BlockNumber(1), BlockCount(UINT64_MAX)},
  };
  for (const Extent& extent : bad) {
    const std::string report = RunInChild([&](Findings& findings) {
      if (freopen("/dev/null", "w", stderr) == nullptr) return;
      arena->Memory(extent);
      findings.Expect(false, "went on");
    });
    INFO(extent.first << " + " << extent.count);
    CHECK(absl::StartsWith(report, "the child died"));
  }
}

TEST_CASE("a client's descriptor shows what the daemon writes later") {
  const auto arena = MakeArena(3 * kMiB);
  auto fd = arena->OpenForClient(1);
  REQUIRE(fd.ok());
  const UniqueFd owned(*fd);
  CHECK((fcntl(*fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
  CHECK((fcntl(*fd, F_GETFD) & FD_CLOEXEC) != 0);
  void* view = mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, *fd, 0);
  REQUIRE(view != MAP_FAILED);
  arena->SegmentMemory(1)[77] = std::byte{42};
  CHECK(static_cast<const std::byte*>(view)[77] == std::byte{42});
  munmap(view, kMiB);
  CHECK(arena->OpenForClient(2).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("two clients get descriptions of their own") {
  const auto arena = MakeArena(kMiB);
  const UniqueFd first(*arena->OpenForClient(0));
  const UniqueFd second(*arena->OpenForClient(0));
  REQUIRE(lseek(first.get(), 100, SEEK_SET) == 100);
  CHECK(lseek(second.get(), 0, SEEK_CUR) == 0);
}

TEST_CASE("the attacks work on an unprotected file, so that their failure means something") {
  const UniqueFd fd(memfd_create("unprotected", MFD_CLOEXEC));
  REQUIRE(ftruncate(fd.get(), kMiB) == 0);
  CHECK(SuccessfulAttacks(fd.get(), kMiB) == AllAttacks());
}

TEST_CASE("no attack on a sealed segment works, not even as the daemon's own user") {
  const auto arena = MakeArena(kMiB);
  const auto memory = arena->SegmentMemory(0);
  std::fill(memory.begin(), memory.end(), std::byte{7});
  const UniqueFd fd(*arena->OpenForClient(0));
  CHECK(SuccessfulAttacks(fd.get(), kMiB) == std::vector<std::string>{});
  CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
  struct stat info {};
  REQUIRE(fstat(fd.get(), &info) == 0);
  CHECK(info.st_size == kMiB);
  CHECK(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{7}; }));
}

TEST_CASE("another user cannot even reopen a sealed segment for writing") {
  if (geteuid() != 0) {
    WARN("skipped: needs root to become another user");
    return;
  }
  const auto arena = MakeArena(kMiB);
  const UniqueFd fd(*arena->OpenForClient(0));
  const std::string report = RunInChild([&](Findings& findings) {
    constexpr uid_t kNobody = 65534;
    if (!findings.Expect(setgroups(0, nullptr) == 0 && setresgid(kNobody, kNobody, kNobody) == 0 &&
                             setresuid(kNobody, kNobody, kNobody) == 0,
                         "cannot become nobody")) {
      return;
    }
    const std::string path = absl::StrCat("/proc/self/fd/", fd.get());
    findings.Expect(open(path.c_str(), O_RDWR) < 0, "reopened for writing");
    findings.Expect(fchmod(fd.get(), 0666) != 0, "changed the mode");
    findings.Expect(SuccessfulAttacks(fd.get(), kMiB).empty(), "an attack worked");
    void* view = mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, fd.get(), 0);
    findings.Expect(view != MAP_FAILED, "cannot map it read-only");
  });
  CHECK(report == "");
}

TEST_CASE("segments are aligned for huge pages and stay out of core dumps and children") {
  const auto arena = MakeArena(3 * kMiB);
  for (size_t i = 0; i < arena->segment_count(); ++i) {
    const void* address = arena->SegmentMemory(i).data();
    CHECK(reinterpret_cast<uint64_t>(address) % (2 * kMiB) == 0);
    const std::string flags = VmFlags(address);
    INFO(flags);
    CHECK(absl::StrContains(flags, " dc "));  // not copied by fork
    CHECK(absl::StrContains(flags, " dd "));  // not dumped
  }
}

TEST_CASE("too few descriptors for the segments: says the limit, how many, and what to do") {
  const UniqueFd next(dup(0));
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit few{static_cast<rlim_t>(next.get() + 10), limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const auto arena = CreateArena({.capacity_bytes = 32 * kMiB,
                                  .segment_bytes = 2 * kMiB,
                                  .backing = ArenaBacking::kMemfd,
                                  .prefault = false},
                                 nullptr);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(absl::IsResourceExhausted(arena.status()));
  const std::string said(arena.status().message());
  INFO(said);
  for (const std::string& part :
       {absl::StrCat("RLIMIT_NOFILE is ", few.rlim_cur), std::string("G2's 16 segments"),
        std::string("raise it to 528"), std::string("g2.segment_bytes")}) {
    CHECK(absl::StrContains(said, part));
  }
}

TEST_CASE("an arena without mounts says that it is memfd, why, and that it starts cold") {
  ArenaOptions options = MemfdOptions(kMiB);
  const std::string asked = (*CreateArena(options, nullptr))->describe();
  CHECK(absl::StartsWith(asked, "arena: memfd (shmem_enabled="));
  CHECK(absl::StrContains(asked, "chosen because memfd was asked for; 1 MiB in 1 segments"));
  CHECK(absl::StrContains(asked, "G2 starts cold"));

  options.backing = ArenaBacking::kAuto;
  const auto arena = CreateArena(options, nullptr);
  REQUIRE(arena.ok());
  CHECK(absl::StrContains((*arena)->describe(),
                          "chosen because there is no usable mount (mount_dir is not set)"));
  CHECK_FALSE((*arena)->stats().survives_restart);
  CHECK((*arena)->live_marks().empty());
  CHECK_FALSE((*arena)->uuid().is_zero());
  CHECK((*arena)->uuid() != MakeArena(kMiB)->uuid());
}

TEST_CASE("the mount backing says what is missing; auto takes memfd then and repeats it") {
  ArenaOptions options = MemfdOptions(kMiB);
  options.backing = ArenaBacking::kMount;
  const auto message = [&options] {
    const absl::Status status = CreateArena(options, nullptr).status();
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  CHECK(message() == "mount_dir is not set");
  options.mount_dir = "/nowhere/at/all";
  options.readonly_dir = "/proc";
  CHECK(message() == "mount_dir /nowhere/at/all: cannot open: No such file or directory");
  options.mount_dir = "/proc";
  CHECK(absl::StartsWith(message(), "mount_dir /proc: is neither tmpfs nor hugetlbfs; mount one"));
  options.readonly_dir = "";
  CHECK(message() == "readonly_dir is not set");
  options.backing = ArenaBacking::kAuto;
  CHECK(absl::StrContains((*CreateArena(options, nullptr))->describe(), "readonly_dir is not set"));
}

TEST_CASE("an arena larger than a limit on this process's memory is refused with the limit") {
  const std::string report = RunInMountNamespace([](const MountRoom&, Findings& findings) {
    if (!findings.Expect(mount("kvkeep", "/sys/fs/cgroup", "tmpfs", 0, "") == 0, "mount")) return;
    // Limits of either cgroup version, for any group this is in.
    std::filesystem::create_directory("/sys/fs/cgroup/memory");
    std::ofstream("/sys/fs/cgroup/memory.max") << 3 * kMiB << "\n";
    std::ofstream("/sys/fs/cgroup/memory/memory.limit_in_bytes") << 3 * kMiB << "\n";
    findings.Expect(CreateArena(MemfdOptions(2 * kMiB), nullptr).ok(), "2 MiB are refused");
    const absl::Status status = CreateArena(MemfdOptions(4 * kMiB), nullptr).status();
    findings.Expect(
        absl::IsResourceExhausted(status) && absl::StrContains(status.message(), "allows 3 MiB"),
        "of 4 MiB: " + status.ToString());
  });
  if (report == kNotPermitted) {
    WARN("skipped: " << kNotPermitted);
    return;
  }
  CHECK(report == "");
}

}  // namespace kvkeep
