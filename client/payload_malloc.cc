#include "client/payload_malloc.h"

#include <malloc.h>

namespace kvkeep::client {

void TuneMallocForPayloads() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace kvkeep::client
