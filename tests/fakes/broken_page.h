// BrokenPage: a page of memory that raises SIGBUS when it is touched, like a page that the kernel
// gave up. Its destructor repairs the page, with zeros in it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

#include "tiers/base/check.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class BrokenPage {
 public:
  // `page` is the beginning of a page of private memory.
  explicit BrokenPage(std::byte* page) : page_(page) {
    const UniqueFd empty(memfd_create("broken page", MFD_CLOEXEC));  // the page lies past the end
    KVKEEP_CHECK(empty.valid());
    KVKEEP_CHECK(mmap(page_, PageBytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      empty.get(), 0) == page_);
  }
  ~BrokenPage() {
    KVKEEP_CHECK(mmap(page_, PageBytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page_);
  }
  BrokenPage(const BrokenPage&) = delete;
  BrokenPage& operator=(const BrokenPage&) = delete;

 private:
  std::byte* const page_;
};

}  // namespace kvkeep
