// ScopedPageBytes: while one lives, PageBytes() says this number. The kernel's pages stay as they
// are; large_pages.cc is a kernel that has such ones.
#pragma once

#include "tiers/base/page_bytes.h"

namespace kvkeep {

class ScopedPageBytes {
 public:
  explicit ScopedPageBytes(uint64_t bytes) : before_(internal::page_bytes.exchange(bytes)) {}
  ~ScopedPageBytes() { internal::page_bytes = before_; }
  ScopedPageBytes(const ScopedPageBytes&) = delete;
  ScopedPageBytes& operator=(const ScopedPageBytes&) = delete;

 private:
  const uint64_t before_;
};

}  // namespace kvkeep
