#include "tests/fakes/failing_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/types.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstring>
#include <map>
#include <span>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"

namespace kvkeep {
namespace {

constexpr size_t kMostOfAName = 12;

struct Armed {
  CallFault fault;
  uint64_t seen = 0;
  const char* failed = nullptr;
  std::vector<const char*> names;  // of the recorded calls, without a fault
};

std::atomic<bool> is_armed = false;
Mutex mu;
Armed armed ABSL_GUARDED_BY(mu);
std::vector<std::span<std::byte>> given_away ABSL_GUARDED_BY(mu);

std::span<std::byte> RangeOf(void* where, size_t bytes) {
  return {static_cast<std::byte*>(where), bytes};
}

// A mapping at a fixed address that fails has unmapped what was there. Another thread has mapped
// something at once: whoever unmaps it now is at fault.
void GiveAway(void* where, size_t bytes) {
  MutexLock lock(&mu);
  KVKEEP_CHECK(syscall(SYS_mmap, where, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                       -1, 0) == reinterpret_cast<long>(where));
  given_away.push_back(RangeOf(where, bytes));
}

bool IsGivenAway(std::span<std::byte> range) {
  MutexLock lock(&mu);
  return std::any_of(given_away.begin(), given_away.end(), [range](std::span<std::byte> other) {
    return range.data() < other.data() + other.size() && other.data() < range.data() + range.size();
  });
}

bool IsRocksDb(const void* caller) {
  Dl_info info;
  return dladdr(caller, &info) != 0 && std::strstr(info.dli_fname, "rocksdb") != nullptr;
}

// Returns the error that this call must fail with; 0: none.
int FaultOf(const char* name, const void* caller) {
  if (!is_armed) return 0;
  const bool of_rocksdb = IsRocksDb(caller);
  MutexLock lock(&mu);
  const CallFault& fault = armed.fault;
  if (of_rocksdb != fault.of_rocksdb) return 0;
  if (!fault.only.empty() && fault.only != name) return 0;
  const uint64_t number = armed.seen++;
  if (fault.error == 0) armed.names.push_back(name);
  if (number != fault.number && !(fault.and_later && number > fault.number)) return 0;
  if (armed.failed == nullptr) armed.failed = name;
  return fault.error;
}

}  // namespace

FailingCalls::FailingCalls(const CallFault& fault) {
  MutexLock lock(&mu);
  KVKEEP_CHECK(!is_armed);
  armed = {.fault = fault};
  is_armed = true;
}

FailingCalls::~FailingCalls() { is_armed = false; }

std::string FailingCalls::failed() const {
  MutexLock lock(&mu);
  return armed.failed == nullptr ? "" : armed.failed;
}

uint64_t FailEachCall(const std::vector<int>& errors,
                      absl::FunctionRef<std::string(const CallFault&)> attempt,
                      const CallFault& like) {
  CallFault fault = like;
  attempt(fault);
  std::vector<const char*> names;
  {
    MutexLock lock(&mu);
    names = armed.names;
  }
  std::map<std::string, size_t> seen;
  uint64_t failed = 0;
  for (uint64_t number = 0; number < names.size(); ++number) {
    if (++seen[names[number]] > kMostOfAName) continue;
    fault.number = number;
    for (const int error : errors) {
      fault.error = error;
      failed += attempt(fault).empty() ? 0 : 1;
    }
  }
  return failed;
}

}  // namespace kvkeep

// The calls themselves. Each is the C library's, or fails.
#define KVKEEP_REAL(name)                                                                   \
  ([] {                                                                                     \
    static auto* const real = reinterpret_cast<decltype(&::name)>(dlsym(RTLD_NEXT, #name)); \
    return real;                                                                            \
  }())
#define KVKEEP_FAULT(name) kvkeep::FaultOf(name, __builtin_return_address(0))
// Returns the value that says that it failed.
#define KVKEEP_FAIL(name, failure)                       \
  if (const int fault = KVKEEP_FAULT(name); fault > 0) { \
    errno = fault;                                       \
    return failure;                                      \
  }
// It also stands for the end of a file.
#define KVKEEP_FAIL_MOVING(name)                          \
  if (const int fault = KVKEEP_FAULT(name); fault != 0) { \
    errno = fault > 0 ? fault : errno;                    \
    return fault > 0 ? -1 : 0;                            \
  }

namespace {

mode_t ModeOf(int flags, va_list more) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = ModeOf(flags, more);
  va_end(more);
  KVKEEP_FAIL("open", -1);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
int openat(int dir, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = ModeOf(flags, more);
  va_end(more);
  KVKEEP_FAIL("openat", -1);
  return static_cast<int>(syscall(SYS_openat, dir, path, flags, mode));
}
int fcntl(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  const long argument = va_arg(more, long);
  va_end(more);
  KVKEEP_FAIL("fcntl", -1);
  return static_cast<int>(syscall(SYS_fcntl, fd, command, argument));
}
int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list more;
  va_start(more, request);
  const long argument = va_arg(more, long);
  va_end(more);
  KVKEEP_FAIL("ioctl", -1);
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}
int fstat(int fd, struct stat* out) noexcept {
  KVKEEP_FAIL("fstat", -1);
  return static_cast<int>(syscall(SYS_fstat, fd, out));
}
int stat(const char* path, struct stat* out) noexcept {
  KVKEEP_FAIL("stat", -1);
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, 0));
}
int lstat(const char* path, struct stat* out) noexcept {
  KVKEEP_FAIL("lstat", -1);
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW));
}
int fstatat(int dir, const char* path, struct stat* out, int flags) noexcept {
  KVKEEP_FAIL("fstatat", -1);
  return static_cast<int>(syscall(SYS_newfstatat, dir, path, out, flags));
}
int fstatfs(int fd, struct statfs* out) noexcept {
  KVKEEP_FAIL("fstatfs", -1);
  return static_cast<int>(syscall(SYS_fstatfs, fd, out));
}
int fstatvfs(int fd, struct statvfs* out) noexcept {
  KVKEEP_FAIL("fstatvfs", -1);
  return KVKEEP_REAL(fstatvfs)(fd, out);
}
int faccessat(int dir, const char* path, int mode, int flags) noexcept {
  KVKEEP_FAIL("faccessat", -1);
  return KVKEEP_REAL(faccessat)(dir, path, mode, flags);
}
ssize_t read(int fd, void* data, size_t bytes) {
  KVKEEP_FAIL_MOVING("read");
  return syscall(SYS_read, fd, data, bytes);
}
ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  KVKEEP_FAIL_MOVING("pread");
  return syscall(SYS_pread64, fd, data, bytes, offset);
}
ssize_t write(int fd, const void* data, size_t bytes) {
  if (fd > STDERR_FILENO) KVKEEP_FAIL_MOVING("write");
  return syscall(SYS_write, fd, data, bytes);
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  KVKEEP_FAIL("pwrite", -1);  // a write that moves nothing is no error
  return syscall(SYS_pwrite64, fd, data, bytes, offset);
}
// Variants that hardened builds call instead.
int __open_2(const char* path, int flags) {
  KVKEEP_FAIL("open", -1);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, 0));
}
int __openat_2(int dir, const char* path, int flags) {
  KVKEEP_FAIL("openat", -1);
  return static_cast<int>(syscall(SYS_openat, dir, path, flags, 0));
}
ssize_t __read_chk(int fd, void* data, size_t bytes, size_t) {
  KVKEEP_FAIL_MOVING("read");
  return syscall(SYS_read, fd, data, bytes);
}
ssize_t __pread_chk(int fd, void* data, size_t bytes, off_t offset, size_t) {
  KVKEEP_FAIL_MOVING("pread");
  return syscall(SYS_pread64, fd, data, bytes, offset);
}
ssize_t readlinkat(int dir, const char* path, char* out, size_t bytes) noexcept {
  KVKEEP_FAIL("readlinkat", -1);
  return syscall(SYS_readlinkat, dir, path, out, bytes);
}
int fsync(int fd) {
  KVKEEP_FAIL("fsync", -1);
  return static_cast<int>(syscall(SYS_fsync, fd));
}
int fdatasync(int fd) {
  KVKEEP_FAIL("fdatasync", -1);
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  KVKEEP_FAIL("fallocate", -1);
  return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, bytes));
}
int posix_fallocate(int fd, off_t offset, off_t bytes) {
  if (const int fault = KVKEEP_FAULT("posix_fallocate"); fault > 0) return fault;
  return KVKEEP_REAL(posix_fallocate)(fd, offset, bytes);
}
int ftruncate(int fd, off_t bytes) noexcept {
  KVKEEP_FAIL("ftruncate", -1);
  return static_cast<int>(syscall(SYS_ftruncate, fd, bytes));
}
int flock(int fd, int operation) noexcept {
  // Releasing never fails.
  if ((operation & LOCK_UN) == 0) KVKEEP_FAIL("flock", -1);
  return static_cast<int>(syscall(SYS_flock, fd, operation));
}
int fchmod(int fd, mode_t mode) noexcept {
  KVKEEP_FAIL("fchmod", -1);
  return static_cast<int>(syscall(SYS_fchmod, fd, mode));
}
int mkdir(const char* path, mode_t mode) noexcept {
  KVKEEP_FAIL("mkdir", -1);
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int mkdirat(int dir, const char* path, mode_t mode) noexcept {
  KVKEEP_FAIL("mkdirat", -1);
  return static_cast<int>(syscall(SYS_mkdirat, dir, path, mode));
}
int rename(const char* from, const char* to) noexcept {
  KVKEEP_FAIL("rename", -1);
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int renameat(int from_dir, const char* from, int to_dir, const char* to) noexcept {
  KVKEEP_FAIL("renameat", -1);
  return static_cast<int>(syscall(SYS_renameat2, from_dir, from, to_dir, to, 0));
}
int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept {
  KVKEEP_FAIL("renameat2", -1);
  return static_cast<int>(syscall(SYS_renameat2, from_dir, from, to_dir, to, flags));
}
int link(const char* from, const char* to) noexcept {
  KVKEEP_FAIL("link", -1);
  return static_cast<int>(syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int symlinkat(const char* target, int dir, const char* path) noexcept {
  KVKEEP_FAIL("symlinkat", -1);
  return static_cast<int>(syscall(SYS_symlinkat, target, dir, path));
}
int unlink(const char* path) noexcept {
  KVKEEP_FAIL("unlink", -1);
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int unlinkat(int dir, const char* path, int flags) noexcept {
  KVKEEP_FAIL("unlinkat", -1);
  return static_cast<int>(syscall(SYS_unlinkat, dir, path, flags));
}
DIR* fdopendir(int fd) {
  KVKEEP_FAIL("fdopendir", nullptr);
  return KVKEEP_REAL(fdopendir)(fd);
}
int eventfd(unsigned count, int flags) noexcept {
  KVKEEP_FAIL("eventfd", -1);
  return static_cast<int>(syscall(SYS_eventfd2, count, flags));
}
int memfd_create(const char* name, unsigned flags) noexcept {
  KVKEEP_FAIL("memfd_create", -1);
  return static_cast<int>(syscall(SYS_memfd_create, name, flags));
}
void* mmap(void* where, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if (const int fault = KVKEEP_FAULT("mmap"); fault > 0) {
    if ((flags & MAP_FIXED) != 0) kvkeep::GiveAway(where, bytes);
    errno = fault;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, where, bytes, protection, flags, fd, offset));
}
int munmap(void* where, size_t bytes) noexcept {
  KVKEEP_CHECK(!kvkeep::IsGivenAway(kvkeep::RangeOf(where, bytes)));
  return static_cast<int>(syscall(SYS_munmap, where, bytes));
}
int madvise(void* memory, size_t bytes, int advice) noexcept {
  KVKEEP_FAIL("madvise", -1);
  return static_cast<int>(syscall(SYS_madvise, memory, bytes, advice));
}

// liburing's calls, which answer with the negative errno.
struct io_uring;
struct io_uring_params;
struct io_uring_probe;
int io_uring_queue_init_params(unsigned entries, struct io_uring* ring,
                               struct io_uring_params* params) {
  if (const int fault = KVKEEP_FAULT("io_uring_queue_init_params"); fault > 0) return -fault;
  return KVKEEP_REAL(io_uring_queue_init_params)(entries, ring, params);
}
int io_uring_ring_dontfork(struct io_uring* ring) {
  if (const int fault = KVKEEP_FAULT("io_uring_ring_dontfork"); fault > 0) return -fault;
  return KVKEEP_REAL(io_uring_ring_dontfork)(ring);
}
struct io_uring_probe* io_uring_get_probe_ring(struct io_uring* ring) {
  KVKEEP_FAIL("io_uring_get_probe_ring", nullptr);
  return KVKEEP_REAL(io_uring_get_probe_ring)(ring);
}
int io_uring_register_buffers_sparse(struct io_uring* ring, unsigned count) {
  if (const int fault = KVKEEP_FAULT("io_uring_register_buffers_sparse"); fault > 0) return -fault;
  return KVKEEP_REAL(io_uring_register_buffers_sparse)(ring, count);
}
int io_uring_register_buffers_update_tag(struct io_uring* ring, unsigned slot,
                                         const struct iovec* memory, const __u64* tags,
                                         unsigned count) {
  if (const int fault = KVKEEP_FAULT("io_uring_register_buffers_update_tag"); fault > 0) {
    return -fault;
  }
  return KVKEEP_REAL(io_uring_register_buffers_update_tag)(ring, slot, memory, tags, count);
}

}  // extern "C"
