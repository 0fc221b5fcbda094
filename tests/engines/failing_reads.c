/* Preloaded into a daemon whose g3.io is "threads": its reads of G3's data files fail as a test
   says in the page that the file KVKEEP_FAILING_READS has (failing_reads.py). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEAST_BYTES 32768 /* of a chunk's read; records and superblocks are smaller */

struct Control {
  uint32_t fail;     /* so many reads fail */
  uint32_t skip;     /* after so many that do not */
  uint32_t delay_us; /* of each read */
  uint32_t failed;   /* since the start */
  uint32_t reads;    /* likewise, all of them */
};

typedef ssize_t (*Read)(int, void*, size_t, off_t);

static struct Control* control;

__attribute__((constructor)) static void Begin(void) {
  const char* path = getenv("KVKEEP_FAILING_READS");
  const int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (page != MAP_FAILED) control = page;
}

/* Whether the number was above 0; then it is one less. */
static int Take(uint32_t* number) {
  uint32_t now = __atomic_load_n(number, __ATOMIC_SEQ_CST);
  while (now > 0) {
    if (__atomic_compare_exchange_n(number, &now, now - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
      return 1;
    }
  }
  return 0;
}

static int Fails(int fd, size_t bytes) {
  char link[64], path[4096];
  if (control == NULL || bytes < LEAST_BYTES) return 0;
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  if (strstr(path, "/data.") == NULL) return 0;
  __atomic_add_fetch(&control->reads, 1, __ATOMIC_SEQ_CST);
  const uint32_t delay_us = __atomic_load_n(&control->delay_us, __ATOMIC_SEQ_CST);
  if (delay_us > 0) usleep(delay_us);
  if (__atomic_load_n(&control->fail, __ATOMIC_SEQ_CST) == 0) return 0;
  if (Take(&control->skip) || !Take(&control->fail)) return 0;
  __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
  return 1;
}

static ssize_t Suffer(const char* name, int fd, void* to, size_t bytes, off_t offset) {
  if (Fails(fd, bytes)) {
    errno = EIO;
    return -1;
  }
  return ((Read)dlsym(RTLD_NEXT, name))(fd, to, bytes, offset);
}

ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  return Suffer("pread", fd, to, bytes, offset);
}

ssize_t pread64(int fd, void* to, size_t bytes, off_t offset) {
  return Suffer("pread64", fd, to, bytes, offset);
}
