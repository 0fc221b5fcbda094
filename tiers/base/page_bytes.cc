#include "tiers/base/page_bytes.h"

#include <unistd.h>

namespace kvkeep::internal {

std::atomic<uint64_t> page_bytes{0};

uint64_t AskForPageBytes() {
  const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  page_bytes.store(bytes, std::memory_order_relaxed);
  return bytes;
}

}  // namespace kvkeep::internal
