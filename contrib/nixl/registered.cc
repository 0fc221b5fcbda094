// Makes keys of names, and finds the files behind shared memory.
#include "contrib/nixl/registered.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>

namespace kvkeep_nixl {
namespace {

// Returns the value of a hexadecimal digit, or -1.
int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<kvkeep_key> KeyItself(const std::string& name) {
  kvkeep_key key = {};
  if (name.size() != 2 * sizeof key.bytes) return std::nullopt;
  for (size_t i = 0; i < sizeof key.bytes; ++i) {
    const int high = DigitOf(name[2 * i]), low = DigitOf(name[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key.bytes[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return key;
}

// Mapped is a file whose first bytes are mapped, shared, at [begin, end).
struct Mapped {
  uintptr_t begin = 0, end = 0;
  unsigned major = 0, minor = 0;
  uint64_t inode = 0;
  std::string path;

  bool IsOf(int fd) const {
    struct stat is = {};
    return fd >= 0 && fstat(fd, &is) == 0 && is.st_ino == inode &&
           makedev(major, minor) == is.st_dev && static_cast<uint64_t>(is.st_size) >= end - begin;
  }
};

// Line is one line of /proc/self/maps.
struct Line {
  uintptr_t begin = 0, end = 0;
  uint64_t offset = 0, inode = 0;
  unsigned major = 0, minor = 0;
  char rights[5] = {};
  int path_at = 0;

  bool Read(const std::string& text) {
    return std::sscanf(text.c_str(),
                       "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &begin,
                       &end, rights, &offset, &major, &minor, &inode, &path_at) == 7;
  }
  bool Shared() const { return rights[0] == 'r' && rights[3] == 's' && inode != 0; }
};

// Returns the mapping that holds [begin, end). The kernel may show it as several lines, which
// follow each other.
std::optional<Mapped> FindMapped(uintptr_t begin, uintptr_t end) {
  std::ifstream maps("/proc/self/maps");
  std::optional<Mapped> found;
  for (std::string text; std::getline(maps, text);) {
    Line line;
    if (!line.Read(text) || !line.Shared()) continue;
    const bool follows = found && found->end == line.begin && found->inode == line.inode &&
                         found->major == line.major && found->minor == line.minor &&
                         line.begin - found->begin == line.offset;
    if (follows) {
      found->end = line.end;
    } else if (line.offset == 0) {
      found =
          Mapped{line.begin, line.end,   line.major,
                 line.minor, line.inode, text.substr(std::min<size_t>(line.path_at, text.size()))};
    }
    if (found && found->begin <= begin && end <= found->end) return found;
  }
  return std::nullopt;
}

// Returns a descriptor of the file, or -1: by its path, or a copy of one that this process has.
int Open(const Mapped& mapped) {
  if (mapped.path.starts_with('/')) {
    const int fd = open(mapped.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (mapped.IsOf(fd)) return fd;
    if (fd >= 0) close(fd);
  }
  DIR* all = opendir("/proc/self/fd");
  if (all == nullptr) return -1;
  int copy = -1;
  while (const dirent* one = readdir(all)) {
    const int fd = std::atoi(one->d_name);
    if (one->d_name[0] == '.' || !mapped.IsOf(fd)) continue;
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    break;
  }
  closedir(all);
  return copy;
}

bool IsMemory(int fd) {
  struct statfs is = {};
  return fstatfs(fd, &is) == 0 && (is.f_type == TMPFS_MAGIC || is.f_type == HUGETLBFS_MAGIC);
}

}  // namespace

Object::Object(const std::string& name) : nixlBackendMD(true), key() {
  if (const auto itself = KeyItself(name)) {
    key = *itself;
    return;
  }
  named = true;
  SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(), key.bytes);
}

Memory::Memory(kvkeep_client* client, uintptr_t address, uint64_t bytes) : nixlBackendMD(true) {
  if (bytes == 0 || bytes > UINTPTR_MAX - address) return;
  auto mapped = FindMapped(address, address + bytes);
  if (!mapped) return;
  mapped->end = address + bytes;
  const int fd = Open(*mapped);
  if (fd < 0) return;
  // An error leaves NULL, and puts are copied.
  if (IsMemory(fd) &&
      kvkeep_memory_register_reused(client, fd, reinterpret_cast<const void*>(mapped->begin),
                                    mapped->end - mapped->begin, &registered, nullptr) != 0) {
    registered = nullptr;
  }
  close(fd);
}

Memory::~Memory() { kvkeep_memory_unregister(registered); }

}  // namespace kvkeep_nixl
