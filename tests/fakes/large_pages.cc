// A library to preload: a kernel whose pages have KVKEEP_FAKE_PAGE_BYTES (16384 or 65536), for the
// program's own calls on a kernel whose pages are smaller.
//
// Calls that such a kernel refuses end the program by abort, and a line says which: an address or
// an offset that is no multiple of its page. It ends the program too when a hole is punched that is
// no whole pages, as that kernel frees none of the rest. Lengths are rounded up, as a kernel does,
// so what a call tears off its neighbour is gone. tmpfs has such pages, mincore answers for each of
// them, and sysconf tells their size. Calls of other libraries, as malloc's, stay as they are.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <linux/magic.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" long __sysconf(int name) noexcept;

namespace {

// The program itself: where its code lies.
struct Program {
  uintptr_t begin = UINTPTR_MAX, end = 0;

  Program() {
    const auto* const headers = reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR));
    const size_t count = getauxval(AT_PHNUM);
    uintptr_t base = 0;
    for (size_t i = 0; i < count; ++i) {
      if (headers[i].p_type == PT_PHDR)
        base = reinterpret_cast<uintptr_t>(headers) - headers[i].p_vaddr;
    }
    for (size_t i = 0; i < count; ++i) {
      if (headers[i].p_type != PT_LOAD || (headers[i].p_flags & PF_X) == 0) continue;
      const uintptr_t at = base + headers[i].p_vaddr;
      begin = at < begin ? at : begin;
      end = at + headers[i].p_memsz > end ? at + headers[i].p_memsz : end;
    }
  }
};

// Returns 0 if the caller is no part of the program, or no page size is set.
uintptr_t PageFor(const void* caller) {
  static const Program program;
  static const uintptr_t page = [] {
    const char* const text = getenv("KVKEEP_FAKE_PAGE_BYTES");
    return text == nullptr ? 0 : strtoul(text, nullptr, 10);
  }();
  const auto at = reinterpret_cast<uintptr_t>(caller);
  return at >= program.begin && at < program.end ? page : 0;
}

uintptr_t Up(uintptr_t value, uintptr_t page) { return (value + page - 1) / page * page; }

[[noreturn]] void Refuse(const char* call, uintptr_t at, uintptr_t bytes, uintptr_t page) {
  dprintf(2, "large_pages: %s at 0x%lx, %lu bytes: not in pages of %lu\n", call, at, bytes, page);
  abort();
}

void Check(const char* call, uintptr_t at, uintptr_t bytes, uintptr_t page) {
  if (at % page != 0) Refuse(call, at, bytes, page);
}

long Call(long number, uintptr_t a, uintptr_t b, uintptr_t c) { return syscall(number, a, b, c); }

void* RawMap(uintptr_t at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, fd, offset));
}

// Takes what the kernel gives where it is aligned as on the fake kernel, else maps it anew.
void* MapAligned(size_t bytes, int protection, int flags, int fd, off_t offset, uintptr_t page) {
  void* const mapped = RawMap(0, bytes, protection, flags, fd, offset);
  if (mapped == MAP_FAILED || reinterpret_cast<uintptr_t>(mapped) % page == 0) return mapped;
  Call(SYS_munmap, reinterpret_cast<uintptr_t>(mapped), bytes, 0);
  void* const room =
      RawMap(0, bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return room;
  const auto begin = reinterpret_cast<uintptr_t>(room);
  const uintptr_t at = Up(begin, page);
  void* const placed = RawMap(at, bytes, protection, flags | MAP_FIXED, fd, offset);
  const int error = errno;
  const bool failed = placed == MAP_FAILED;
  if (at > begin) Call(SYS_munmap, begin, at - begin, 0);
  const uintptr_t rest = failed ? at : at + bytes;
  if (begin + bytes + page > rest) Call(SYS_munmap, rest, begin + bytes + page - rest, 0);
  errno = error;
  return placed;
}

void* Map(void* where, size_t bytes, int protection, int flags, int fd, off_t offset,
          const void* caller) {
  const uintptr_t page = PageFor(caller);
  const auto at = reinterpret_cast<uintptr_t>(where);
  if (page == 0 || bytes == 0) return RawMap(at, bytes, protection, flags, fd, offset);
  Check("mmap's offset", static_cast<uintptr_t>(offset), bytes, page);
  const size_t whole = Up(bytes, page);
  if ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == 0) {
    return MapAligned(whole, protection, flags, fd, offset, page);
  }
  Check("mmap", at, bytes, page);
  return RawMap(at, whole, protection, flags, fd, offset);
}

// A call of an address, a length and one more argument.
int Paged(const char* name, long number, void* where, size_t bytes, int argument,
          const void* caller) {
  const uintptr_t page = PageFor(caller);
  const auto at = reinterpret_cast<uintptr_t>(where);
  if (page != 0) {
    Check(name, at, bytes, page);
    bytes = Up(bytes, page);
  }
  return static_cast<int>(Call(number, at, bytes, static_cast<uintptr_t>(argument)));
}

int Allocate(int fd, int mode, off_t offset, off_t bytes, const void* caller) {
  const uintptr_t page = PageFor(caller);
  const auto result = static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, bytes));
  if (page == 0 || result != 0 || (mode & FALLOC_FL_PUNCH_HOLE) == 0) return result;
  struct stat info {};
  const bool to_end = fstat(fd, &info) == 0 && offset + bytes >= info.st_size;
  const auto at = static_cast<uintptr_t>(offset), length = static_cast<uintptr_t>(bytes);
  if (at % page != 0 || (!to_end && length % page != 0)) Refuse("a hole", at, length, page);
  return result;
}

int FileSystem(long number, uintptr_t what, struct statfs* fs, const void* caller) {
  const auto result = static_cast<int>(Call(number, what, reinterpret_cast<uintptr_t>(fs), 0));
  const uintptr_t page = PageFor(caller);
  if (result != 0 || page == 0 || static_cast<unsigned long>(fs->f_type) != TMPFS_MAGIC)
    return result;
  const uintptr_t more = page / static_cast<uintptr_t>(fs->f_bsize);
  fs->f_bsize = fs->f_frsize = static_cast<decltype(fs->f_bsize)>(page);
  fs->f_blocks /= more;
  fs->f_bfree /= more;
  fs->f_bavail /= more;
  return result;
}

}  // namespace

#define KVKEEP_CALLER __builtin_return_address(0)

extern "C" {

long sysconf(int name) noexcept {
  const uintptr_t page = name == _SC_PAGESIZE ? PageFor(KVKEEP_CALLER) : 0;
  return page != 0 ? static_cast<long>(page) : __sysconf(name);
}
int getpagesize() noexcept {
  const uintptr_t page = PageFor(KVKEEP_CALLER);
  return static_cast<int>(page != 0 ? page : getauxval(AT_PAGESZ));
}
void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  return Map(at, bytes, protection, flags, fd, offset, KVKEEP_CALLER);
}
void* mmap64(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  return Map(at, bytes, protection, flags, fd, offset, KVKEEP_CALLER);
}
int munmap(void* at, size_t bytes) noexcept {
  return Paged("munmap", SYS_munmap, at, bytes, 0, KVKEEP_CALLER);
}
int madvise(void* at, size_t bytes, int advice) noexcept {
  return Paged("madvise", SYS_madvise, at, bytes, advice, KVKEEP_CALLER);
}
int mprotect(void* at, size_t bytes, int protection) noexcept {
  return Paged("mprotect", SYS_mprotect, at, bytes, protection, KVKEEP_CALLER);
}
int msync(void* at, size_t bytes, int flags) {
  return Paged("msync", SYS_msync, at, bytes, flags, KVKEEP_CALLER);
}
int mincore(void* where, size_t bytes, unsigned char* there) noexcept {
  const uintptr_t page = PageFor(KVKEEP_CALLER);
  const auto at = reinterpret_cast<uintptr_t>(where);
  if (page == 0)
    return static_cast<int>(Call(SYS_mincore, at, bytes, reinterpret_cast<uintptr_t>(there)));
  Check("mincore", at, bytes, page);
  const uintptr_t own = getauxval(AT_PAGESZ);
  std::vector<unsigned char> small(Up(bytes, page) / own);
  const long result =
      Call(SYS_mincore, at, Up(bytes, page), reinterpret_cast<uintptr_t>(small.data()));
  for (size_t i = 0; result == 0 && i < small.size(); ++i) {
    const size_t large = i * own / page;
    there[large] =
        static_cast<unsigned char>(i * own % page == 0 ? 0 : there[large]) | (small[i] & 1);
  }
  return static_cast<int>(result);
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return Allocate(fd, mode, offset, bytes, KVKEEP_CALLER);
}
int fallocate64(int fd, int mode, off_t offset, off_t bytes) {
  return Allocate(fd, mode, offset, bytes, KVKEEP_CALLER);
}
int statfs(const char* path, struct statfs* fs) noexcept {
  return FileSystem(SYS_statfs, reinterpret_cast<uintptr_t>(path), fs, KVKEEP_CALLER);
}
int fstatfs(int fd, struct statfs* fs) noexcept {
  return FileSystem(SYS_fstatfs, static_cast<uintptr_t>(fd), fs, KVKEEP_CALLER);
}

}  // extern "C"
