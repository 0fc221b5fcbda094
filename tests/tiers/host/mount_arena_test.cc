#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/manual_executor.h"
#include "tests/tiers/host/child_process.h"
#include "tests/tiers/host/client_attacks.h"
#include "tests/tiers/host/in_namespace.h"
#include "tests/tiers/host/mounted_arena.h"
#include "tests/tiers/host/vm_flags.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/host/arena.h"
#include "tiers/host/kernel_facts.h"

namespace kvkeep {
namespace {

void ExpectError(const ArenaOptions& options, absl::StatusCode code, const std::string& part,
                 Findings& findings) {
  const absl::Status status = CreateArena(options, nullptr).status();
  findings.Expect(status.code() == code && absl::StrContains(status.message(), part),
                  absl::StrCat("wanted an error with '", part, "', got ", status.ToString()));
}

bool AllAre(std::span<const std::byte> memory, int value) {
  return std::all_of(memory.begin(), memory.end(),
                     [value](std::byte b) { return b == static_cast<std::byte>(value); });
}

std::vector<std::string> List(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("several threads take a mount's memory; a failed start of theirs gives all of it back") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    std::atomic<uint64_t> taken = 0;
    ArenaOptions options = MountOptions(room, 9 * kMiB);
    options.threads = 4;
    options.taken_bytes = &taken;
    // A directory in the place of a segment's file.
    const std::string in_the_way = room.writable + "/segment.003/x";
    std::filesystem::create_directories(in_the_way);
    ExpectError(options, absl::StatusCode::kFailedPrecondition, "segment.003", findings);
    std::filesystem::remove_all(room.writable + "/segment.003");
    const std::vector<std::string> left = List(room.writable);
    findings.Expect(left == std::vector<std::string>{"arena.lock"}, absl::StrJoin(left, " "));
    for (const bool again : {false, true}) {
      taken = 0;
      const auto arena = Open(options, findings);
      if (arena == nullptr) return;
      findings.Expect(taken == 9 * kMiB, absl::StrCat(taken.load(), " bytes told of"));
      for (size_t i = 0; i < arena->segment_count(); ++i) {
        std::byte& first = arena->SegmentMemory(i)[0];
        findings.Expect(first == static_cast<std::byte>(again ? i : 0), "a segment's byte");
        first = static_cast<std::byte>(i);
      }
    }
  });
}

TEST_CASE("on a mount, too, segments stay out of core dumps and children") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    for (const char* when : {"made", "found again"}) {
      const auto arena = Open(MountOptions(room, 3 * kMiB), findings);
      if (arena == nullptr) return;
      for (size_t i = 0; i < arena->segment_count(); ++i) {
        const std::string flags = VmFlags(arena->SegmentMemory(i).data());
        findings.Expect(absl::StrContains(flags, " dc ") && absl::StrContains(flags, " dd "),
                        absl::StrCat("segment ", i, ", ", when, ": ", flags));
      }
    }
  });
}

TEST_CASE("on a mount the segments are files with all their memory allocated") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    ManualExecutor executor;
    const auto arena = Open(MountOptions(room, 5 * kMiB), findings, &executor);
    if (arena == nullptr) return;
    findings.Expect(List(room.writable) == std::vector<std::string>{"arena.id", "arena.lock",
                                                                    "arena.marks", "segment.000",
                                                                    "segment.001", "segment.002"},
                    "wrong files: " + absl::StrJoin(List(room.writable), " "));
    for (size_t i = 0; i < 3; ++i) {
      struct stat info {};
      stat(absl::StrCat(room.writable, "/segment.00", i).c_str(), &info);
      const uint64_t bytes = i < 2 ? 2 * kMiB : kMiB;
      findings.Expect(static_cast<uint64_t>(info.st_size) == bytes &&
                          static_cast<uint64_t>(info.st_blocks) * 512 == bytes &&
                          (info.st_mode & 07777) == 0600,
                      absl::StrCat("segment ", i, " is not as it should be"));
    }
    const auto marks_bytes = static_cast<off_t>(RoundUp(1280 * 8, PageBytes()));
    struct stat marks {};
    stat((room.writable + "/arena.marks").c_str(), &marks);
    findings.Expect(marks.st_size == marks_bytes && marks.st_blocks * 512 == marks.st_size &&
                        (marks.st_mode & 07777) == 0600,  // a word for each of 1280 blocks
                    "arena.marks is not as it should be");
    findings.Expect(arena->live_marks().size() == 1280 &&
                        static_cast<off_t>(arena->stats().marks_bytes) == marks_bytes,
                    "not a mark a block");
    executor.RunAll();
    findings.Expect(arena->stats().prefaulted_bytes == 5 * kMiB, "prefault did not finish");
    findings.Expect(arena->stats().survives_restart, "should survive a restart");
    findings.Expect(arena->stats().reused_segments == 0, "nothing was there to reuse");
    const std::string line = arena->describe();
    findings.Expect(
        absl::StrContains(line, absl::StrCat("arena: mount ", room.writable, " (tmpfs, huge=")) &&
            absl::StrContains(line,
                              "chosen because the mount was asked for; 5 MiB in 3 segments") &&
            absl::StrContains(line, "the memory outlives the daemon"),
        line);
  });
}

TEST_CASE("no attack on a descriptor opened through the read-only mount works, as root either") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    const auto arena = Open(MountOptions(room, 3 * kMiB), findings);
    if (arena == nullptr) return;
    std::fill(arena->SegmentMemory(1).begin(), arena->SegmentMemory(1).end(), std::byte{5});
    auto fd = arena->OpenForClient(1);
    if (!findings.Expect(fd.ok(), fd.status().ToString())) return;
    const UniqueFd owned(*fd);

    const std::vector<std::string> worked = SuccessfulAttacks(*fd, kMiB);
    findings.Expect(worked.empty(), "worked: " + absl::StrJoin(worked, ", "));
    const std::string path = absl::StrCat("/proc/self/fd/", *fd);
    findings.Expect(open(path.c_str(), O_RDWR) < 0 && errno == EROFS, "reopened for writing");
    findings.Expect(fchmod(*fd, 0666) != 0 && errno == EROFS, "changed the mode");
    findings.Expect(linkat(AT_FDCWD, path.c_str(), AT_FDCWD, (room.writable + "/x").c_str(),
                           AT_SYMLINK_FOLLOW) != 0,
                    "linked it into the writable mount");
    findings.Expect(AllAre(arena->SegmentMemory(1), 5), "content changed");
    struct stat info {};
    findings.Expect(fstat(*fd, &info) == 0 && info.st_size == kMiB, "length changed");

    // The same attacks through the writable mount do work: the bind mount protects.
    const UniqueFd inside(open((room.writable + "/segment.001").c_str(), O_RDWR));
    findings.Expect(SuccessfulAttacks(inside.get(), kMiB) == AllAttacks(),
                    "attacks are no attacks");
  });
}

TEST_CASE("after a restart with the same geometry the files are reused, content and uuid kept") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    Uuid uuid;
    {
      const auto arena = Open(MountOptions(room, 5 * kMiB), findings);
      if (arena == nullptr) return;
      uuid = arena->uuid();
      for (size_t i = 0; i < 3; ++i) {
        std::fill(arena->SegmentMemory(i).begin(), arena->SegmentMemory(i).end(),
                  static_cast<std::byte>(i + 1));
      }
      const std::span<uint64_t> marks = arena->live_marks();
      for (size_t i = 0; i < marks.size(); ++i) marks[i] = 77 + i;
    }
    ManualExecutor executor;
    // As full as the mount: reusing needs no second copy of the space.
    const auto again = Open(MountOptions(room, 5 * kMiB), findings, &executor);
    if (again == nullptr) return;
    executor.RunAll();
    findings.Expect(again->uuid() == uuid, "another uuid");
    findings.Expect(again->stats().reused_segments == 3, "not reused");
    findings.Expect(absl::StrContains(again->describe(), "files of an earlier start reused"),
                    again->describe());
    for (size_t i = 0; i < 3; ++i) {
      findings.Expect(AllAre(again->SegmentMemory(i), static_cast<int>(i + 1)), "content lost");
    }
    const std::span<uint64_t> marks = again->live_marks();
    findings.Expect(marks.size() == 5 * kMiB / kBlockBytes, "not a mark a block");
    for (size_t i = 0; i < marks.size(); ++i) findings.Expect(marks[i] == 77 + i, "marks lost");
    findings.Expect(again->OpenForClient(2).ok(), "no descriptor after the restart");
  });
}

TEST_CASE("files of another geometry, or not whole, are replaced under a new uuid") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    std::ofstream(room.writable + "/notes.txt") << "not ours";
    Uuid last;
    bool fresh = false;
    uint64_t owners = 0;
    const auto expect_fresh = [&](uint64_t capacity, const std::string& after,
                                  const std::string& said = "") {
      ArenaOptions options = MountOptions(room, capacity);
      options.fresh = fresh;
      options.owners = owners;
      const auto arena = Open(options, findings);
      if (arena == nullptr) return;
      findings.Expect(arena->uuid() != last, "same uuid after " + after);
      findings.Expect(arena->stats().reused_segments == 0, "reused after " + after);
      for (size_t i = 0; i < arena->segment_count(); ++i) {
        findings.Expect(AllAre(arena->SegmentMemory(i), 0), "old bytes after " + after);
        std::fill(arena->SegmentMemory(i).begin(), arena->SegmentMemory(i).end(), std::byte{1});
      }
      const auto marks = std::as_writable_bytes(arena->live_marks());
      findings.Expect(marks.size() == capacity / 512 && AllAre(marks, 0),
                      "old marks after " + after);
      std::fill(marks.begin(), marks.end(), std::byte{1});
      last = arena->uuid();
      const std::string why = absl::StrCat("of an earlier start replaced (", said, ")");
      findings.Expect(said.empty() ? !absl::StrContains(arena->describe(), "replaced")
                                   : absl::StrContains(arena->describe(), why),
                      absl::StrCat("after ", after, ": ", arena->describe()));
    };
    const auto path = [&room](const char* name) { return absl::StrCat(room.writable, "/", name); };
    expect_fresh(6 * kMiB, "nothing");
    expect_fresh(4 * kMiB, "a smaller capacity", "capacity or segment size changed");
    findings.Expect(!std::filesystem::exists(path("segment.002")), "segment.002 is left over");
    expect_fresh(14 * kMiB, "a capacity that needs the old ones' space",
                 "capacity or segment size changed");
    findings.Expect(truncate(path("segment.001").c_str(), 4096) == 0, "truncate");
    expect_fresh(14 * kMiB, "a shortened segment", "segment.001 is not whole");
    unlink(path("segment.003").c_str());
    expect_fresh(14 * kMiB, "a missing segment", "segment.003 is not whole");
    chmod(path("segment.000").c_str(), 0666);
    expect_fresh(14 * kMiB, "a segment that others can write", "segment.000 is not whole");
    findings.Expect(truncate(path("arena.marks").c_str(), 4096) == 0, "truncate");
    expect_fresh(14 * kMiB, "shortened marks", "arena.marks is not whole");
    chmod(path("arena.marks").c_str(), 0666);
    expect_fresh(14 * kMiB, "marks that others can write", "arena.marks is not whole");
    unlink(path("arena.marks").c_str());
    expect_fresh(14 * kMiB, "missing marks", "arena.marks is not whole");
    unlink(path("arena.id").c_str());
    expect_fresh(14 * kMiB, "a lost arena.id");
    unlink(path("arena.id").c_str());
    findings.Expect(symlink("v9:whatever", path("arena.id").c_str()) == 0, "symlink");
    expect_fresh(14 * kMiB, "an arena.id of another version",
                 "their format is v9, this daemon's is v2");
    owners = 1;
    expect_fresh(14 * kMiB, "segments that change hands",
                 "the store's identity, the tenants' shares, or who may map them, changed");
    fresh = true;
    expect_fresh(14 * kMiB, "being asked to", "a fresh arena was asked for");
    findings.Expect(std::filesystem::exists(path("notes.txt")), "removed a file that is not ours");
  });
}

TEST_CASE("a second daemon is refused while the first lives, with auto as well") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    ArenaOptions options = MountOptions(room, 2 * kMiB);
    {
      const auto arena = Open(options, findings);
      for (const ArenaBacking backing : {ArenaBacking::kMount, ArenaBacking::kAuto}) {
        options.backing = backing;
        ExpectError(options, absl::StatusCode::kFailedPrecondition, "another daemon uses it",
                    findings);
      }
      options.capacity_bytes = 4 * kMiB;
      ExpectError(options, absl::StatusCode::kFailedPrecondition, "another daemon uses it",
                  findings);
      findings.Expect(arena->OpenForClient(0).ok(), "the first one was disturbed");
    }
    Open(options, findings);
  });
}

TEST_CASE("a mount that is too small is an error that names both sizes, and nothing is left") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=4m,mode=0700"), "mount")) return;
    ArenaOptions options = MountOptions(room, 8 * kMiB);
    ExpectError(
        options, absl::StatusCode::kResourceExhausted,
        absl::StrCat("8 MiB wanted, and ", RoundUp(16 * kKiB, PageBytes()) / kKiB,
                     " KiB for arena.marks, 4 MiB free there; mount it with a larger size="),
        findings);
    options.backing = ArenaBacking::kAuto;  // no silent second arena in other memory
    ExpectError(options, absl::StatusCode::kResourceExhausted, "8 MiB wanted", findings);
    findings.Expect(List(room.writable) == std::vector<std::string>{"arena.lock"},
                    "left something");
    options.backing = ArenaBacking::kMount;
    const uint64_t marks = RoundUp(8 * kKiB, PageBytes());
    options.capacity_bytes = 4 * kMiB;  // would fit without its marks
    ExpectError(options, absl::StatusCode::kResourceExhausted,
                absl::StrCat("and ", marks / kKiB, " KiB for arena.marks"), findings);
    options.capacity_bytes = 4 * kMiB - marks;
    Open(options, findings);
  });
}

TEST_CASE("a start that fails halfway gives back what it had taken") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    // Inodes for the directory, the lock and four files.
    if (!findings.Expect(room.MountTmpfs("size=64m,mode=0700,nr_inodes=6"), "mount")) return;
    ArenaOptions options = MountOptions(room, 12 * kMiB);
    for (const auto& [capacity, failing] :
         {std::pair(12 * kMiB, "segment.004"), std::pair(8 * kMiB, "arena.marks")}) {
      options.capacity_bytes = capacity;
      ExpectError(options, absl::StatusCode::kResourceExhausted,
                  absl::StrCat("cannot open ", failing), findings);
      findings.Expect(List(room.writable) == std::vector<std::string>{"arena.lock"},
                      "left: " + absl::StrJoin(List(room.writable), " "));
    }
    options.capacity_bytes = 4 * kMiB;
    Open(options, findings);
  });
}

TEST_CASE("mounts that do not protect are refused, each with its reason") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    const auto code = absl::StatusCode::kFailedPrecondition;
    const ArenaOptions options = MountOptions(room, 2 * kMiB);
    ExpectError(options, code, "is neither tmpfs nor hugetlbfs; mount one there", findings);

    findings.Expect(mount("t", room.writable.c_str(), "tmpfs", 0, "size=8m") == 0, "mount");
    ExpectError(options, code, "others may write to it (mode 1777)", findings);
    findings.Expect(chmod(room.writable.c_str(), 0700) == 0, "chmod");
    if (chown(room.writable.c_str(), 64123, 64123) == 0) {  // root may
      ExpectError(options, code, "belongs to user 64123", findings);
      findings.Expect(chown(room.writable.c_str(), geteuid(), getegid()) == 0, "chown");
    }
    ExpectError(options, code, "is not a bind mount of mount_dir", findings);
    findings.Expect(
        mount(room.writable.c_str(), room.readonly.c_str(), nullptr, MS_BIND, nullptr) == 0,
        "bind");
    ExpectError(options, code, "is not mounted read-only", findings);

    ArenaOptions same = options;
    same.readonly_dir = room.writable;
    ExpectError(same, code, "is not mounted read-only", findings);
    findings.Expect(List(room.writable).empty(), "a refused mount was written to");

    ArenaOptions automatic = options;
    automatic.backing = ArenaBacking::kAuto;
    const auto arena = Open(automatic, findings);
    if (arena == nullptr) return;
    findings.Expect(absl::StrContains(arena->describe(), "arena: memfd") &&
                        absl::StrContains(arena->describe(), "is not mounted read-only"),
                    arena->describe());
  });
}

TEST_CASE("auto takes the mounts when both are right") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=8m,mode=0700"), "mount")) return;
    ArenaOptions options = MountOptions(room, 2 * kMiB);
    options.backing = ArenaBacking::kAuto;
    const auto arena = Open(options, findings);
    if (arena == nullptr) return;
    findings.Expect(absl::StrContains(arena->describe(), "chosen because both mounts are there"),
                    arena->describe());
  });
}

TEST_CASE("no descriptor is given once the read-only mount is writable or a segment was replaced") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=8m,mode=0700"), "mount")) return;
    const auto arena = Open(MountOptions(room, 4 * kMiB), findings);
    if (arena == nullptr) return;
    unlink((room.writable + "/segment.001").c_str());
    std::ofstream(room.writable + "/segment.001") << "something else";
    findings.Expect(absl::StrContains(arena->OpenForClient(1).status().message(), "was replaced"),
                    "a replaced segment was given out");
    findings.Expect(mount(nullptr, room.readonly.c_str(), nullptr,
                          MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, nullptr) == 0,
                    "remount");
    findings.Expect(
        absl::StrContains(arena->OpenForClient(0).status().message(), "remounted writable"),
        "a descriptor of a writable mount was given out");
  });
}

TEST_CASE("tmpfs with huge=always backs the arena with huge pages") {
  if (ShmemEnabled() == "deny") {
    WARN("skipped: shmem_enabled is deny");
    return;
  }
  const uint64_t bytes = std::max(16 * kMiB, TransparentHugePageBytes());
  if (bytes > 64 * kMiB) {
    WARN("skipped: a huge page has " << bytes / kMiB << " MiB");
    return;
  }
  InNamespace([bytes](const MountRoom& room, Findings& findings) {
    if (!room.MountTmpfs("size=72m,mode=0700,huge=always")) return;  // a kernel without them
    ManualExecutor executor;
    ArenaOptions options = MountOptions(room, bytes);
    options.segment_bytes = bytes;
    const auto arena = Open(options, findings, &executor);
    if (arena == nullptr) return;
    executor.RunAll();
    // All of it, unless the machine's memory is too fragmented just now.
    findings.Expect(arena->stats().huge_page_bytes > 0,
                    absl::StrCat(arena->stats().huge_page_bytes, " bytes on huge pages"));
    findings.Expect(absl::StrContains(arena->describe(), "huge=always"), arena->describe());
  });
}

TEST_CASE(
    "a mount whose pages are larger than the arena or a segment is refused with what to say") {
  const std::string report = RunInMountNamespace([](const MountRoom& room, Findings& findings) {
    if (!room.MountHugetlbfs("pagesize=1G,mode=0700")) return;  // not every processor has them
    const absl::Status status = CreateArena(MountOptions(room, 4 * kMiB), nullptr).status();
    findings.Expect(absl::IsInvalidArgument(status) &&
                        absl::StrContains(status.message(), "has pages of 1048576 KiB"),
                    status.ToString());
  });
  if (report == kNotPermitted) {
    WARN("skipped: " << kNotPermitted);
    return;
  }
  CHECK(report == "");
}

TEST_CASE("hugetlbfs backs the arena where the machine has huge pages set apart") {
  const std::string no_pages = "no free huge pages";
  const std::string report = RunInMountNamespace([&](const MountRoom& room, Findings& findings) {
    struct statvfs vfs {};
    if (!findings.Expect(room.MountHugetlbfs("pagesize=2M,mode=0700") &&
                             statvfs(room.writable.c_str(), &vfs) == 0,
                         "mount")) {
      return;
    }
    std::ifstream free_pages("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    uint64_t pages = 0;
    if (!findings.Expect((free_pages >> pages) && pages >= 3, no_pages)) return;
    const auto arena = Open(MountOptions(room, 4 * kMiB + 4096), findings);
    if (arena == nullptr) return;
    findings.Expect(arena->capacity_bytes() == 4 * kMiB, "not rounded down to its pages");
    findings.Expect(arena->live_marks().size() == 1024 && arena->stats().marks_bytes == 2 * kMiB,
                    "the marks are not one page");
    auto fd = arena->OpenForClient(0);
    if (!findings.Expect(fd.ok(), fd.status().ToString())) return;
    findings.Expect(SuccessfulAttacks(*fd, 2 * kMiB).empty(), "an attack worked");
    close(*fd);
  });
  if (report == no_pages || report == kNotPermitted) {
    WARN("skipped: " << report);
    return;
  }
  CHECK(report == "");
}

}  // namespace kvkeep
