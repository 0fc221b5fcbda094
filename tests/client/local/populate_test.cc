#include "client/local/populate.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

namespace kvkeep::client {
namespace {

// Maps a memfd whose pages exist.
std::shared_ptr<const MappedFile> File(uint64_t bytes) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
  REQUIRE(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  const std::vector<char> page(4096, 'x');
  for (uint64_t at = 0; at < bytes; at += page.size()) {
    REQUIRE(pwrite(fd.get(), page.data(), page.size(), static_cast<off_t>(at)) == 4096);
  }
  auto file = MappedFile::Map(fd, false, bytes, bytes);
  REQUIRE(file.ok());
  return *std::move(file);
}

// Returns how much of a mapping this process has mapped.
uint64_t MappedBytes(const MappedFile& file) {
  std::ifstream smaps("/proc/self/smaps");
  const auto begin = reinterpret_cast<uintptr_t>(file.memory().data());
  bool here = false;
  uint64_t bytes = 0;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
      here = from >= begin && to <= begin + file.memory().size();
    } else if (here && line.rfind("Rss:", 0) == 0) {
      bytes += std::stoull(line.substr(4)) << 10;
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("the arena's pages are mapped ahead, segment by segment, up to a limit") {
  auto arena = std::make_shared<ArenaMap>();
  arena->segments = {File(20 * kMiB), File(4 * kMiB), File(16 * kMiB)};
  const auto mapped = [&](size_t segment) { return MappedBytes(*arena->segments[segment]); };
  Populate populate(arena, 26 * kMiB);
  CHECK(mapped(0) == 0);
  populate.Step();
  if (populate.done()) {
    WARN("skipped: this kernel maps nothing ahead");
    return;
  }
  CHECK(mapped(0) / kMiB == 8);  // and perhaps some pages around it
  while (!populate.done()) populate.Step();
  CHECK(mapped(0) == 20 * kMiB);
  CHECK(mapped(1) == 4 * kMiB);
  CHECK(mapped(2) / kMiB == 8);
  CHECK(populate.bytes() == 32 * kMiB);  // the slice that exceeded the limit
}

TEST_CASE("a segment with holes is left alone: to map them would make their pages") {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
  REQUIRE(ftruncate(fd.get(), 16 * kMiB) == 0);
  auto sparse = MappedFile::Map(fd, false, 16 * kMiB, 16 * kMiB);
  REQUIRE(sparse.ok());
  auto arena = std::make_shared<ArenaMap>();
  arena->segments = {*sparse, File(4 * kMiB)};
  Populate populate(arena);
  while (!populate.done()) populate.Step();
  struct stat facts {};
  REQUIRE(fstat(fd.get(), &facts) == 0);
  CHECK(facts.st_blocks == 0);
  CHECK(populate.bytes() <= 4 * kMiB);
}

}  // namespace kvkeep::client
