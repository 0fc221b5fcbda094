// The page that a test shares with the disk that it makes sick (sick_disk.c). C, for both sides;
// one of them writes a field and the other reads it, with atomic loads and stores.
#pragma once

#include <stdint.h>

enum { SICK_READS = 1, SICK_WRITES = 2, SICK_FLUSHES = 4, SICK_ALL = 7 };
/* What a power cut does to the sectors that were written and not flushed. */
enum {
  SICK_CUT_DROP = 0,    /* all are lost */
  SICK_CUT_PREFIX = 1,  /* the first ones arrived */
  SICK_CUT_REORDER = 2, /* any of them arrived, in any order */
  SICK_CUT_TEAR = 3,    /* and of each only some sectors of 512 bytes */
  SICK_CUT_KINDS = 4
};

struct SickDiskControl {
  /* The test's: masks of SICK_READS and so on. */
  uint32_t fail;          /* answered EIO */
  uint32_t fail_permille; /* so many of them; 1000: all */
  uint32_t hang;          /* kept waiting while the bit is set */
  uint32_t hold_flushes;  /* those that have something to flush are kept waiting */
  uint32_t delay;         /* kept waiting for delay_us */
  uint32_t delay_us;
  uint32_t gone; /* everything is answered EIO at once, hanging ones too */
  uint32_t cut_kind;
  uint32_t cut_request; /* counted up: cut the power now, and be gone */
  uint64_t cut_seed;
  /* The disk's. */
  uint32_t cut_done; /* follows cut_request */
  uint32_t hanging;  /* requests kept waiting now */
  uint64_t reads, writes, flushes, failed;
  uint64_t unflushed_writes; /* now */
  uint64_t lost_sectors;     /* by power cuts, in all */
};
