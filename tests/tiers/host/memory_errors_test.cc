// Pages of an arena on a mount that cannot be read any more: the next start takes others. Errors
// are a file's mapping past the file's end, or real ones where the kernel makes them (root,
// CONFIG_MEMORY_FAILURE).
#include "tiers/base/memory_errors.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "tests/tiers/host/child_process.h"
#include "tests/tiers/host/in_namespace.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/units.h"
#include "tiers/host/arena.h"

namespace kvkeep {
namespace {

// The page that breaks, in segment 1.
uint64_t BrokenAt() { return 3 * PageBytes(); }
#ifndef MADV_HWPOISON
constexpr int MADV_HWPOISON = 100;
#endif

std::unique_ptr<Arena> OpenArena(const MountRoom& room, Findings& findings) {
  ArenaOptions options;
  options.capacity_bytes = 4 * kMiB;
  options.segment_bytes = 2 * kMiB;
  options.backing = ArenaBacking::kMount;
  options.mount_dir = room.writable;
  options.readonly_dir = room.readonly;
  auto arena = CreateArena(options, nullptr);
  if (!findings.Expect(arena.ok(), arena.status().ToString())) return nullptr;
  return *std::move(arena);
}

void Fill(Arena& arena) {
  for (size_t i = 0; i < arena.segment_count(); ++i) {
    std::memset(arena.SegmentMemory(i).data(), 7, arena.SegmentMemory(i).size());
  }
  for (uint64_t& mark : arena.live_marks()) mark = 7;
}

size_t NotesIn(const std::string& dir) {
  size_t notes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    notes += MemoryErrorNote::FromName(entry.path().filename()).has_value();
  }
  return notes;
}

// The page at BrokenAt() reads as zeros; everything else is as Fill left it.
void ExpectOnlyThatPageNew(const MountRoom& room, Findings& findings) {
  const auto arena = OpenArena(room, findings);
  if (arena == nullptr) return;
  findings.Expect(arena->stats().reused_segments == 2, "not reused: " + arena->describe());
  findings.Expect(arena->stats().memory_errors == 1, "not counted");
  findings.Expect(absl::StrContains(arena->describe(), ", 1 of their pages taken anew"),
                  arena->describe());
  findings.Expect(NotesIn(room.writable) == 0, "the note is still there");
  size_t wrong = 0;
  for (size_t i = 0; i < arena->segment_count(); ++i) {
    const auto memory = arena->SegmentMemory(i);
    for (size_t at = 0; at < memory.size(); ++at) {
      const bool broken = i == 1 && at >= BrokenAt() && at < BrokenAt() + PageBytes();
      wrong += memory[at] != (broken ? std::byte{0} : std::byte{7});
    }
  }
  for (const uint64_t mark : arena->live_marks()) wrong += mark != 7;
  findings.Expect(wrong == 0, absl::StrCat(wrong, " bytes are not as they were"));
  arena->SegmentMemory(1)[BrokenAt()] = std::byte{1};  // it can be used
}

// Runs `body` in a child that must die of SIGBUS.
void ExpectDeath(const std::function<void()>& body, Findings& findings) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
#ifdef KVKEEP_SANITIZED  // which report it, and exit
  const bool died = status != 0;
#else
  const bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
#endif
  findings.Expect(died, absl::StrCat("it lives, or died otherwise: ", status));
}

// Returns madvise's result in a process that may be given up.
int PoisonsMemory() {
  const pid_t child = fork();
  if (child == 0) {
    void* const page =
        mmap(nullptr, PageBytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static_cast<volatile char*>(page)[0] = 1;
    _exit(madvise(page, PageBytes(), MADV_HWPOISON) == 0 ? 0 : errno);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : ECHILD;
}

}  // namespace

TEST_CASE("a page that a daemon died of is another one after the next start, the rest is kept") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    ExpectDeath(
        [&] {
          Findings none;
          const auto arena = OpenArena(room, none);
          if (arena == nullptr) _exit(1);
          Fill(*arena);
          const std::string file = room.writable + "/segment.001";
          // Accesses to the mapping past the end of the file fail with SIGBUS.
          if (truncate(file.c_str(), BrokenAt()) != 0) _exit(2);
          volatile std::byte* const at = arena->SegmentMemory(1).data() + BrokenAt();
          *at = std::byte{1};
        },
        findings);
    findings.Expect(NotesIn(room.writable) == 1, "no note");
    // The rest of the segment is unchanged: it was only cut for the error.
    const std::string file = room.writable + "/segment.001";
    std::filesystem::resize_file(file, 2 * kMiB);
    {
      const UniqueFd fd(open(file.c_str(), O_RDWR | O_CLOEXEC));
      const std::string sevens(2 * kMiB - BrokenAt(), '\7');
      findings.Expect(pwrite(fd.get(), sevens.data(), sevens.size(), BrokenAt()) ==
                          static_cast<ssize_t>(sevens.size()),
                      "pwrite");
    }
    ExpectOnlyThatPageNew(room, findings);
  });
}

TEST_CASE("notes of marks and of what is no page of this arena are dealt with") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    {
      const auto arena = OpenArena(room, findings);
      if (arena == nullptr) return;
      Fill(*arena);
    }
    for (const char* note : {"/arena.error-ffffffff-0", "/arena.error-7-0",
                             "/arena.error-0-ffffffffffffffff"}) {
      findings.Expect(symlink("-", (room.writable + note).c_str()) == 0, note);
    }
    const auto arena = OpenArena(room, findings);
    if (arena == nullptr) return;
    findings.Expect(arena->stats().reused_segments == 2, arena->describe());
    findings.Expect(NotesIn(room.writable) == 0, "notes are left");
    const auto marks = arena->live_marks();
    size_t wrong = 0;
    for (size_t i = 0; i < marks.size(); ++i) {
      wrong += marks[i] != (i < PageBytes() / sizeof(marks[i]) ? 0u : 7u);
    }
    findings.Expect(wrong == 0, "wrong marks");
  });
}

TEST_CASE("an error that the kernel tells of is of its page's blocks, one of the marks of none") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    const auto arena = OpenArena(room, findings);
    if (arena == nullptr) return;
    for (void* const at : {static_cast<void*>(arena->SegmentMemory(1).data() + BrokenAt() + 100),
                           static_cast<void*>(arena->live_marks().data())}) {
      siginfo_t told{};
      told.si_signo = SIGBUS;
      told.si_code = BUS_MCEERR_AO;
      told.si_addr = at;
      findings.Expect(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, &told) == 0,
                      "not sent");
    }
    const Extent page = {BlockNumber(512 + BrokenAt() / kBlockBytes),
                         BlockCount(PageBytes() / kBlockBytes)};
    findings.Expect(arena->TakeBroken() == std::vector{page}, "wrong blocks");
    findings.Expect(arena->TakeBroken().empty(), "told twice");
    findings.Expect(arena->stats().memory_errors == 2, "not counted");
    findings.Expect(NotesIn(room.writable) == 2, "not noted");
  });
}

TEST_CASE("a page that the kernel poisons is unreadable, noted, and another one afterwards") {
  if (const int error = PoisonsMemory(); error != 0) {
    WARN("skipped: MADV_HWPOISON: " << std::strerror(error)
                                    << " (wants root and CONFIG_MEMORY_FAILURE)");
    return;
  }
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    ExpectDeath(
        [&] {
          Findings none;
          const auto arena = OpenArena(room, none);
          if (arena == nullptr) _exit(1);
          Fill(*arena);
          const auto page = arena->SegmentMemory(1).subspan(BrokenAt(), PageBytes());
          if (madvise(page.data(), page.size(), MADV_HWPOISON) != 0) _exit(2);
          if (GuardedXxh3(page).has_value()) _exit(3);
          if (arena->stats().memory_errors != 1) _exit(4);
          volatile std::byte* const at = page.data();
          *at = std::byte{1};
        },
        findings);
    ExpectOnlyThatPageNew(room, findings);
  });
}

}  // namespace kvkeep
