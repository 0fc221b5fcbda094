// PageBytes: the size of this kernel's pages: 4 KiB, or 16 or 64 KiB on some aarch64 kernels.
//
// Memory is mapped, unmapped, advised, touched and punched in these. The block of the formats
// (kBlockBytes, units.h) is another thing: it is the same on every machine, and no page is smaller.
// Thread-safe, and safe in a signal handler once it was called.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvkeep {

namespace internal {
// 0: nobody has asked the kernel yet. Tests set it (tests/fakes/scoped_page_bytes.h).
extern std::atomic<uint64_t> page_bytes;
uint64_t AskForPageBytes();
}  // namespace internal

// Returns the bytes of a page, which the kernel is asked for once.
inline uint64_t PageBytes() {
  const uint64_t known = internal::page_bytes.load(std::memory_order_relaxed);
  return known != 0 ? known : internal::AskForPageBytes();
}

// Returns the bytes of a transparent huge page: what one page table maps. A table is a page of
// entries of 8 bytes, so this is 2 MiB with pages of 4 KiB, 32 MiB with 16 and 512 MiB with 64.
inline uint64_t TransparentHugePageBytes() { return PageBytes() / 8 * PageBytes(); }

}  // namespace kvkeep
