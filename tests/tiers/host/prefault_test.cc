#include "tiers/host/prefault.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>

#include "tests/fakes/manual_executor.h"
#include "tests/fakes/scoped_page_bytes.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/host/arena.h"

namespace kvkeep {
namespace {

ArenaOptions Options(uint64_t capacity_bytes) {
  ArenaOptions options;
  options.capacity_bytes = capacity_bytes;
  options.segment_bytes = 32 * kMiB;
  options.backing = ArenaBacking::kMemfd;
  return options;
}

// Fresh anonymous pages.
class Pages {
 public:
  explicit Pages(size_t bytes)
      : memory_(static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
                bytes) {
    // Otherwise one touch could bring 2 MiB at once.
    madvise(memory_.data(), bytes, MADV_NOHUGEPAGE);
  }
  ~Pages() { munmap(memory_.data(), memory_.size()); }
  std::span<std::byte> memory() const { return memory_; }
  size_t resident(uint64_t page = PageBytes()) const {
    std::vector<unsigned char> present(memory_.size() / page);
    REQUIRE(mincore(memory_.data(), memory_.size(), present.data()) == 0);
    return static_cast<size_t>(
        std::count_if(present.begin(), present.end(), [](unsigned char p) { return p & 1; }));
  }

 private:
  const std::span<std::byte> memory_;
};

}  // namespace

TEST_CASE("the prefault goes in slices, one a task, and finishes the whole arena") {
  ManualExecutor executor;
  const auto arena = *CreateArena(Options(80 * kMiB), &executor);  // 32 + 32 + 16: 5 slices of 16
  CHECK(executor.size() == Prefaulter::kParallelSlices);
  CHECK(arena->stats().prefaulted_bytes == 0);
  executor.RunOne();
  CHECK(arena->stats().prefaulted_bytes == 16 * kMiB);
  CHECK(executor.RunAll() >= 4);
  CHECK(arena->stats().prefaulted_bytes == 80 * kMiB);
  CHECK(arena->stats().prefault_failed_bytes == 0);
  CHECK(arena->stats().huge_page_bytes <= 80 * kMiB);
}

TEST_CASE("threads prefault the whole arena and leave what was written meanwhile") {
  ThreadPool pool("prefault", 2);
  const auto arena = *CreateArena(Options(200 * kMiB), &pool);
  for (size_t i = 0; i < arena->segment_count(); ++i) {
    const auto memory = arena->SegmentMemory(i);
    for (size_t at = 0; at < memory.size(); at += 4096) memory[at] = std::byte{9};
  }
  for (int i = 0; i < 2000 && arena->stats().prefaulted_bytes < 200 * kMiB; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // for the prefault threads
  }
  CHECK(arena->stats().prefaulted_bytes == 200 * kMiB);
  size_t wrong = 0;
  for (size_t i = 0; i < arena->segment_count(); ++i) {
    const auto memory = arena->SegmentMemory(i);
    for (size_t at = 0; at < memory.size(); at += 4096) wrong += memory[at] != std::byte{9};
  }
  CHECK(wrong == 0);
}

TEST_CASE("an arena that goes away takes its queued prefault with it") {
  ManualExecutor executor;
  auto arena = *CreateArena(Options(80 * kMiB), &executor);
  executor.RunOne();
  arena.reset();
  CHECK_FALSE(executor.idle());
  executor.RunAll();  // would fault on unmapped memory
  CHECK(executor.idle());

  ThreadPool pool("prefault", 2);
  for (int i = 0; i < 20; ++i) (*CreateArena(Options(80 * kMiB), &pool)).reset();
}

TEST_CASE("no prefault runs when it is switched off or there is no executor") {
  ManualExecutor executor;
  ArenaOptions options = Options(4 * kMiB);
  options.prefault = false;
  const auto arena = *CreateArena(options, &executor);
  CHECK(executor.idle());
  CHECK(arena->stats().prefaulted_bytes == 0);
}

TEST_CASE("the fallback brings every page without changing a byte") {
  const Pages fresh(64 * PageBytes());
  CHECK(fresh.resident() == 0);
  TouchPages(fresh.memory());
  CHECK(fresh.resident() == 64);

  const Pages written(4 * PageBytes());
  for (size_t i = 0; i < written.memory().size(); ++i) {
    written.memory()[i] = static_cast<std::byte>(i * 7);
  }
  TouchPages(written.memory());
  size_t wrong = 0;
  for (size_t i = 0; i < written.memory().size(); ++i) {
    wrong += written.memory()[i] != static_cast<std::byte>(i * 7);
  }
  CHECK(wrong == 0);
}

TEST_CASE("the fallback touches a page once, however large pages are") {
  const uint64_t page = PageBytes();
  const Pages fresh(64 * page);
  const ScopedPageBytes larger(16 * page);
  TouchPages(fresh.memory());
  CHECK(fresh.resident(page) == 4);
}

TEST_CASE("memory that the kernel will not give is counted as failed, and kills nobody") {
  const UniqueFd file(memfd_create("empty", MFD_CLOEXEC));
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  REQUIRE(memory != MAP_FAILED);  // past the end of the file: touching it would be a SIGBUS
  ManualExecutor executor;
  const Prefaulter prefaulter({{static_cast<std::byte*>(memory), 4096}}, &executor);
  executor.RunAll();
  CHECK(prefaulter.stats().failed_bytes == 4096);
  CHECK(prefaulter.stats().done_bytes == 0);
  munmap(memory, 4096);
}

}  // namespace kvkeep
