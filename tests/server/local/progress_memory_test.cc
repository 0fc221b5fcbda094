#include "server/local/progress_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <set>
#include <string>

namespace kvkeep {
namespace {

constexpr size_t kWordsBytes = local::kProgressWords * sizeof(local::ProgressWord);

}  // namespace

TEST_CASE("every progress word but the session's is given out once, then none, then those back") {
  const auto memory = ProgressMemory::Create();
  REQUIRE(memory.ok());
  std::set<uint32_t> words;
  while (const std::optional<uint32_t> word = (**memory).TakeWord()) {
    CHECK(words.insert(*word).second);
  }
  CHECK(words.size() == local::kProgressWords - 1);
  CHECK_FALSE(words.contains(0));
  CHECK(*words.rbegin() == local::kProgressWords - 1);
  (**memory).Publish(77, 5);
  (**memory).GiveBack(77);
  CHECK((**memory).TakeWord() == 77u);
  CHECK((**memory).TakeWord() == std::nullopt);
}

TEST_CASE("a client reads the words and can change nothing about them") {
  const auto memory = ProgressMemory::Create();
  REQUIRE(memory.ok());
  const uint32_t word = *(**memory).TakeWord();
  const absl::StatusOr<UniqueFd> fd = (**memory).OpenForClient();
  REQUIRE(fd.ok());
  void* const mapped = mmap(nullptr, kWordsBytes, PROT_READ, MAP_SHARED, fd->get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  const auto* words = static_cast<const volatile local::ProgressWord*>(mapped);
  CHECK(words[word] == 0);
  (**memory).Publish(word, 3);
  CHECK(words[word] == 3);
  CHECK(words[0] == 0);
  (**memory).EndSession();
  CHECK(words[0] == 1);

  CHECK(mmap(nullptr, kWordsBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0) == MAP_FAILED);
  CHECK(mprotect(mapped, kWordsBytes, PROT_READ | PROT_WRITE) != 0);
  CHECK(ftruncate(fd->get(), 0) != 0);
  CHECK(fallocate(fd->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
  CHECK(madvise(mapped, kWordsBytes, MADV_REMOVE) != 0);
  // Not even a process that may reopen it.
  const UniqueFd again(open(("/proc/self/fd/" + std::to_string(fd->get())).c_str(), O_RDWR));
  if (again.valid()) {
    CHECK(mmap(nullptr, kWordsBytes, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0) ==
          MAP_FAILED);
    CHECK(write(again.get(), "x", 1) < 0);
    CHECK(ftruncate(again.get(), 0) != 0);
    CHECK(fallocate(again.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
  }
  munmap(mapped, kWordsBytes);
}

TEST_CASE("a word that is taken again begins at zero") {
  const auto memory = ProgressMemory::Create();
  REQUIRE(memory.ok());
  const uint32_t word = *(**memory).TakeWord();
  const absl::StatusOr<UniqueFd> fd = (**memory).OpenForClient();
  REQUIRE(fd.ok());
  (**memory).Publish(word, local::kProgressFailed);
  (**memory).GiveBack(word);
  CHECK((**memory).TakeWord() == word);
  local::ProgressWord value = 7;
  REQUIRE(pread(fd->get(), &value, sizeof(value), word * sizeof(value)) == sizeof(value));
  CHECK(value == 0);
}

}  // namespace kvkeep
