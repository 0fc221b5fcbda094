#include "tests/tiers/host/client_attacks.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tiers/base/page_bytes.h"

namespace kvkeep {
namespace {

struct Attack {
  const char* name;
  bool (*works)(int fd, size_t bytes);
};

bool MapWritable(int fd, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, bytes);
  return true;
}

bool MakeMappingWritable(int fd, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return false;
  const bool works = mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0;
  munmap(memory, bytes);
  return works;
}

bool RemovePages(int fd, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return false;
  const bool works = madvise(memory, bytes, MADV_REMOVE) == 0;
  munmap(memory, bytes);
  return works;
}

bool Write(int fd, size_t) { return pwrite(fd, "x", 1, 0) == 1; }

bool PunchHole(int fd, size_t) {
  return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                   static_cast<off_t>(PageBytes())) == 0;
}

bool AllocatePastEnd(int fd, size_t bytes) {
  return fallocate(fd, 0, 0, static_cast<off_t>(bytes + 4096)) == 0;
}

bool Grow(int fd, size_t bytes) { return ftruncate(fd, static_cast<off_t>(bytes + 8192)) == 0; }

bool Shrink(int fd, size_t) { return ftruncate(fd, 0) == 0; }

constexpr Attack kAttacks[] = {
    {"map writable", MapWritable},
    {"make a mapping writable", MakeMappingWritable},
    {"remove pages of a mapping", RemovePages},
    {"write", Write},
    {"punch a hole", PunchHole},
    {"allocate past the end", AllocatePastEnd},
    {"grow", Grow},
    {"shrink", Shrink},
};

constexpr char kReopened[] = "reopened for writing: ";

}  // namespace

std::vector<std::string> SuccessfulAttacks(int fd, size_t bytes) {
  std::vector<std::string> worked;
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  const int reopened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (reopened >= 0) {
    for (const Attack& attack : kAttacks) {
      if (attack.works(reopened, bytes)) worked.push_back(absl::StrCat(kReopened, attack.name));
    }
    // For the second round. A sealed file allows its own length.
    if (ftruncate(reopened, static_cast<off_t>(bytes)) != 0) worked.emplace_back("damage for good");
    close(reopened);
  }
  for (const Attack& attack : kAttacks) {
    if (attack.works(fd, bytes)) worked.emplace_back(attack.name);
  }
  if (truncate(path.c_str(), 0) == 0) worked.emplace_back("truncate by path");
  return worked;
}

std::vector<std::string> AllAttacks() {
  std::vector<std::string> names;
  for (const Attack& attack : kAttacks) names.push_back(absl::StrCat(kReopened, attack.name));
  for (const Attack& attack : kAttacks) names.emplace_back(attack.name);
  names.emplace_back("truncate by path");
  return names;
}

}  // namespace kvkeep
