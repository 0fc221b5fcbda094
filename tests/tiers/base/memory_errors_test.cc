// Memory that cannot be read: a file's mapping past the file's end raises SIGBUS as a broken page
// does, except for the code. Real errors: tests/tiers/host/memory_errors_test.cc.
#include "tiers/base/memory_errors.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "tests/fakes/scratch_dir.h"
#include "tiers/base/checksum.h"
#include "tiers/base/page_bytes.h"

namespace kvkeep {
namespace {

constexpr size_t kPages = 4;

// Four pages of bytes; the last two break on request, and can be repaired.
class BreakableMemory {
 public:
  explicit BreakableMemory(const ScratchDir& dir)
      : file_(open((dir / "memory").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    Mend();
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, kPages * PageBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0));
    REQUIRE(memory_ != MAP_FAILED);
    std::fill(memory_, memory_ + kPages * PageBytes(), std::byte{7});
  }
  ~BreakableMemory() { munmap(memory_, kPages * PageBytes()); }

  std::span<std::byte> pages(size_t first, size_t count) {
    return {memory_ + first * PageBytes(), count * PageBytes()};
  }
  std::span<std::byte> all() { return pages(0, kPages); }
  void Break() { REQUIRE(ftruncate(file_.get(), 2 * PageBytes()) == 0); }
  void Mend() { REQUIRE(ftruncate(file_.get(), kPages * PageBytes()) == 0); }

 private:
  UniqueFd file_;
  std::byte* memory_ = nullptr;
};

UniqueFd OpenDirectory(const ScratchDir& dir) {
  return UniqueFd(open(dir.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

std::vector<MemoryErrorNote> NotesIn(const ScratchDir& dir) {
  std::vector<MemoryErrorNote> notes;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    if (const auto note = MemoryErrorNote::FromName(entry.path().filename())) {
      notes.push_back(*note);
    }
  }
  return notes;
}

#ifndef KVKEEP_SANITIZED  // which hold signals back
siginfo_t told_of{};

void TellOfIt(int) { syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, &told_of); }

// Returns whether one of many guarded reads was left while this thread was told, as the kernel does
// it, of an error of 2^bits bytes at `at`.
bool IsLeft(std::span<const std::byte> read, std::byte* at, short bits) {
  told_of.si_signo = SIGBUS;
  told_of.si_code = BUS_MCEERR_AO;
  told_of.si_addr = at;
  told_of.si_addr_lsb = bits;
  struct sigaction action {
  }, before{};
  action.sa_handler = TellOfIt;
  action.sa_flags = SA_NODEFER;
  REQUIRE(sigaction(SIGALRM, &action, &before) == 0);
  const itimerval each_ms{{0, 1000}, {0, 1000}}, never{};
  REQUIRE(setitimer(ITIMER_REAL, &each_ms, nullptr) == 0);
  bool left = false;
  for (int i = 0; i < 500 && !left; ++i) left = !GuardedXxh3(read).has_value();
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  return left;
}
#endif

}  // namespace

TEST_CASE("a checksum and a copy of memory that breaks are answered, others are right") {
  const ScratchDir dir;
  BreakableMemory memory(dir);
  std::vector<std::byte> to(kPages * PageBytes());
  CHECK(GuardedXxh3(memory.all()) == Xxh3(memory.all()));
  CHECK(GuardedCopy(to.data(), memory.all()));
  CHECK(std::equal(to.begin(), to.end(), memory.all().begin()));
  memory.Break();
  for (int round = 0; round < 3; ++round) {
    CHECK_FALSE(GuardedXxh3(memory.all()).has_value());
    CHECK_FALSE(GuardedCopy(to.data(), memory.pages(2, 1)));
    CHECK_FALSE(GuardedXxh3(memory.pages(3, 1).subspan(100, 8)).has_value());
    CHECK(GuardedXxh3(memory.pages(0, 2)) == Xxh3(memory.pages(0, 2)));
  }
  memory.Mend();
  CHECK(GuardedXxh3(memory.all()) == Xxh3(memory.all()));
}

#ifndef KVKEEP_SANITIZED
TEST_CASE("a huge page that breaks ends reads of all of it, whichever address is told") {
  constexpr size_t kHuge = 2 << 20;
  std::vector<std::byte> memory(3 * kHuge, std::byte{7});
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  std::byte* const huge = memory.data() + (kHuge - address % kHuge) % kHuge;
  const std::span<const std::byte> half(huge + kHuge / 2, kHuge / 2);
  CHECK(IsLeft(half, huge, 21));
  CHECK_FALSE(IsLeft(half, huge, 12));
  CHECK(IsLeft(half, huge + kHuge / 2, 12));
  CHECK_FALSE(IsLeft(half, huge + kHuge, 21));
}
#endif

TEST_CASE("threads that meet broken memory at once each get their own answer") {
  const ScratchDir dir;
  BreakableMemory memory(dir);
  memory.Break();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, broken = i % 2 == 1] {
      const auto pages = memory.pages(broken ? 2 : 0, 2);
      for (int n = 0; n < 200; ++n) wrong += GuardedXxh3(pages).has_value() == broken;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("an error in watched memory is counted and noted, once a place") {
  const ScratchDir dir;
  BreakableMemory memory(dir);
  const MemoryWatch watch({{memory.pages(0, 1), 3}, {memory.pages(1, 3), 0xffffffff, PageBytes()}},
                          OpenDirectory(dir));
  CHECK(watch.errors() == 0);
  memory.Break();
  CHECK_FALSE(GuardedXxh3(memory.pages(3, 1)).has_value());
  CHECK_FALSE(GuardedXxh3(memory.pages(3, 1)).has_value());
  CHECK(watch.errors() == 2);
  const std::vector<MemoryErrorNote> notes = NotesIn(dir);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] == MemoryErrorNote{0xffffffff, 3 * PageBytes()});
}

TEST_CASE("an error that nobody has touched is noted, and everything goes on") {
  const ScratchDir dir;
  BreakableMemory memory(dir);
  MemoryWatch watch({{memory.all(), 2}}, OpenDirectory(dir));
  HearOfMemoryErrorsEarly();
  siginfo_t told{};  // as the kernel sends it; a process may send it to itself
  told.si_signo = SIGBUS;
  told.si_code = BUS_MCEERR_AO;
  told.si_addr = memory.pages(1, 1).data();
  const pid_t thread = static_cast<pid_t>(syscall(SYS_gettid));
  for (int i = 0; i < 2; ++i) {
    REQUIRE(syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, SIGBUS, &told) == 0);
  }
  CHECK(watch.errors() == 2);
  CHECK(watch.TakeNew() == std::vector<MemoryErrorNote>{{2, PageBytes()}});
  CHECK(watch.TakeNew().empty());
  CHECK(NotesIn(dir).size() == 1);
}

TEST_CASE("who touches broken memory unguarded dies of it, and leaves the note") {
  const ScratchDir dir;
  BreakableMemory memory(dir);
  const pid_t child = fork();
  if (child == 0) {
    const MemoryWatch watch({{memory.all(), 5}}, OpenDirectory(dir));
    memory.Break();
    volatile std::byte* const at = memory.pages(2, 1).data();
    *at = std::byte{1};
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
#ifdef KVKEEP_SANITIZED  // which report it, and exit
  CHECK(status != 0);
#else
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGBUS);
#endif
  const std::vector<MemoryErrorNote> notes = NotesIn(dir);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] == MemoryErrorNote{5, 2 * PageBytes()});
}

TEST_CASE("a note's name is read as it was written, another file's name is none") {
  for (const MemoryErrorNote& note : {MemoryErrorNote{0, 0}, MemoryErrorNote{16383, 0x3ffff000},
                                      MemoryErrorNote{UINT64_MAX, UINT64_MAX}}) {
    CHECK(MemoryErrorNote::FromName(note.ToName()) == note);
  }
  CHECK(MemoryErrorNote{18, 4096}.ToName() == "arena.error-12-1000");
  for (const char* other :
       {"", "arena.error-", "arena.error-1", "arena.error-1-", "arena.error--1", "arena.error-1-2x",
        "arena.marks", "segment.000", "arena.error-1-10000000000000000"}) {
    CAPTURE(other);
    CHECK_FALSE(MemoryErrorNote::FromName(other).has_value());
  }
}

}  // namespace kvkeep
