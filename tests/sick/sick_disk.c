/* An nbdkit plugin: a disk in memory with a volatile write cache, whose faults a test switches on
   and off through a page of shared memory (disk_control.h).

     nbdkit -f -U SOCKET sick_disk.so size=BYTES control=FILE

   What is written is read back at once, but is on the disk only after a flush. A power cut applies
   none, some, or parts of the writes since the last flush, as its kind and seed say. */
#define NBDKIT_API_VERSION 2
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nbdkit-plugin.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "disk_control.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define SECTOR 512
#define PAUSE_US 500

struct Write {
  struct Write* next;
  uint64_t offset;
  uint32_t count;
  unsigned char data[];
};

static int64_t disk_bytes;
static char* control_path;
static struct SickDiskControl* control;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static unsigned char* now;                               /* as read */
static unsigned char* disk;                              /* as after a power cut */
static struct Write *first_write, **last_write = &first_write;
static uint64_t random_state;

static uint32_t Get(const uint32_t* field) { return __atomic_load_n(field, __ATOMIC_SEQ_CST); }
static void Count(uint64_t* field) { __atomic_add_fetch(field, 1, __ATOMIC_SEQ_CST); }

static uint64_t Random(void) { /* splitmix64 */
  uint64_t z = (random_state += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

static int Config(const char* key, const char* value) {
  if (strcmp(key, "size") == 0) return (disk_bytes = nbdkit_parse_size(value)) < 0 ? -1 : 0;
  if (strcmp(key, "control") == 0) return (control_path = nbdkit_realpath(value)) ? 0 : -1;
  nbdkit_error("unknown parameter %s", key);
  return -1;
}

static unsigned char* Memory(void) {
  void* at = mmap(NULL, disk_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

/* A list of writes, oldest first, in a random order. */
static void Shuffle(struct Write** writes, size_t count) {
  for (size_t i = count; i > 1; --i) {
    const size_t j = Random() % i;
    struct Write* other = writes[j];
    writes[j] = writes[i - 1];
    writes[i - 1] = other;
  }
}

static void Arrive(const struct Write* write, uint32_t kind) {
  const int whole = kind != SICK_CUT_TEAR || Random() % 2;
  for (uint32_t at = 0; at < write->count; at += SECTOR) {
    const uint32_t bytes = write->count - at < SECTOR ? write->count - at : SECTOR;
    if (whole || Random() % 2) {
      memcpy(disk + write->offset + at, write->data + at, bytes);
    } else {
      Count(&control->lost_sectors);
    }
  }
}

static void Cut(void) {
  size_t count = 0, i = 0;
  for (struct Write* w = first_write; w; w = w->next) ++count;
  struct Write** writes = calloc(count + 1, sizeof(*writes));
  for (struct Write* w = first_write; w; w = w->next) writes[i++] = w;
  random_state = control->cut_seed;
  const uint32_t kind = control->cut_kind;
  if (kind >= SICK_CUT_REORDER) Shuffle(writes, count);
  const size_t arrived = kind == SICK_CUT_DROP ? 0 : Random() % (count + 1);
  for (i = 0; i < count; ++i) {
    if (i < arrived) {
      Arrive(writes[i], kind);
    } else {
      __atomic_add_fetch(&control->lost_sectors, writes[i]->count / SECTOR, __ATOMIC_SEQ_CST);
    }
  }
  for (i = 0; i < count; ++i) {
    memcpy(now + writes[i]->offset, disk + writes[i]->offset, writes[i]->count);
    free(writes[i]);
  }
  free(writes);
  first_write = NULL;
  last_write = &first_write;
  __atomic_store_n(&control->unflushed_writes, 0, __ATOMIC_SEQ_CST);
}

/* A cut comes when no request does, too. */
static void* AwaitCuts(void* unused) {
  while (1) {
    const uint32_t asked = Get(&control->cut_request);
    if (asked != Get(&control->cut_done)) {
      __atomic_store_n(&control->gone, 1, __ATOMIC_SEQ_CST);
      pthread_mutex_lock(&lock);
      Cut();
      pthread_mutex_unlock(&lock);
      __atomic_store_n(&control->cut_done, asked, __ATOMIC_SEQ_CST);
    }
    usleep(PAUSE_US);
  }
  return unused;
}

static int GetReady(void) {
  const int fd = control_path ? open(control_path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0 || disk_bytes <= 0) {
    nbdkit_error("size= and control= are needed");
    return -1;
  }
  void* page = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  now = Memory();
  disk = Memory();
  if (page == MAP_FAILED || !now || !disk) {
    nbdkit_error("mmap: %m");
    return -1;
  }
  control = page;
  return 0;
}

static int AfterFork(void) {
  pthread_t thread;
  return pthread_create(&thread, NULL, AwaitCuts, NULL) == 0 ? 0 : -1;
}

static void* Open(int readonly) { return NBDKIT_HANDLE_NOT_NEEDED; }
static int64_t GetSize(void* handle) { return disk_bytes; }
static int CanMultiConn(void* handle) { return 1; }
static int CanFua(void* handle) { return NBDKIT_FUA_EMULATE; }

/* What the test wants of a request of this kind: 0, or -1 and EIO. */
static int Suffer(uint32_t kind) {
  if (Get(&control->delay) & kind) usleep(Get(&control->delay_us));
  if (Get(&control->hang) & kind && !Get(&control->gone)) {
    __atomic_add_fetch(&control->hanging, 1, __ATOMIC_SEQ_CST);
    while (Get(&control->hang) & kind && !Get(&control->gone)) usleep(PAUSE_US);
    __atomic_sub_fetch(&control->hanging, 1, __ATOMIC_SEQ_CST);
  }
  int fails = Get(&control->gone) != 0;
  if (!fails && Get(&control->fail) & kind) {
    pthread_mutex_lock(&lock);
    fails = Random() % 1000 < Get(&control->fail_permille);
    pthread_mutex_unlock(&lock);
  }
  if (!fails) return 0;
  Count(&control->failed);
  nbdkit_set_error(EIO);
  return -1;
}

static int Read(void* handle, void* to, uint32_t count, uint64_t offset, uint32_t flags) {
  if (Suffer(SICK_READS) != 0) return -1;
  pthread_mutex_lock(&lock);
  memcpy(to, now + offset, count);
  pthread_mutex_unlock(&lock);
  Count(&control->reads);
  return 0;
}

static int Write(void* handle, const void* from, uint32_t count, uint64_t offset, uint32_t flags) {
  if (Suffer(SICK_WRITES) != 0) return -1;
  struct Write* write = malloc(sizeof(*write) + count);
  if (!write) {
    nbdkit_set_error(ENOMEM);
    return -1;
  }
  write->next = NULL;
  write->offset = offset;
  write->count = count;
  memcpy(write->data, from, count);
  pthread_mutex_lock(&lock);
  const int gone = Get(&control->gone) != 0; /* the power was cut meanwhile */
  if (gone) {
    free(write);
  } else {
    memcpy(now + offset, from, count);
    *last_write = write;
    last_write = &write->next;
    Count(&control->unflushed_writes);
  }
  pthread_mutex_unlock(&lock);
  if (gone) {
    nbdkit_set_error(EIO);
    return -1;
  }
  Count(&control->writes);
  return 0;
}

static int Flush(void* handle, uint32_t flags) {
  if (Suffer(SICK_FLUSHES) != 0) return -1;
  while (Get(&control->hold_flushes) && !Get(&control->gone) &&
         __atomic_load_n(&control->unflushed_writes, __ATOMIC_SEQ_CST) > 0) {
    usleep(PAUSE_US);
  }
  pthread_mutex_lock(&lock);
  const int gone = Get(&control->gone) != 0;
  while (!gone && first_write) {
    struct Write* write = first_write;
    memcpy(disk + write->offset, write->data, write->count);
    first_write = write->next;
    free(write);
  }
  if (!gone) last_write = &first_write;
  if (!gone) __atomic_store_n(&control->unflushed_writes, 0, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&lock);
  if (gone) {
    nbdkit_set_error(EIO);
    return -1;
  }
  Count(&control->flushes);
  return 0;
}

static struct nbdkit_plugin plugin = {
    .name = "sick-disk",
    .config = Config,
    .get_ready = GetReady,
    .after_fork = AfterFork,
    .open = Open,
    .get_size = GetSize,
    .can_multi_conn = CanMultiConn,
    .can_fua = CanFua,
    .pread = Read,
    .pwrite = Write,
    .flush = Flush,
};

NBDKIT_REGISTER_PLUGIN(plugin)
