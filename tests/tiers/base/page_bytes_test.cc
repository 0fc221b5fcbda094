#include "tiers/base/page_bytes.h"

#include <sys/auxv.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/fakes/scoped_page_bytes.h"
#include "tiers/base/units.h"

namespace kvkeep {

TEST_CASE("the kernel says how large a page is, and a test may say otherwise for a while") {
  CHECK(PageBytes() % kBlockBytes == 0);
  if (getenv("KVKEEP_FAKE_PAGE_BYTES") == nullptr) CHECK(PageBytes() == getauxval(AT_PAGESZ));
  const uint64_t before = PageBytes();
  {
    const ScopedPageBytes larger(64 * kKiB);
    CHECK(PageBytes() == 64 * kKiB);
  }
  CHECK(PageBytes() == before);
}

TEST_CASE("a huge page is what one page table maps") {
  for (const auto& [page, huge] :
       {std::pair(4 * kKiB, 2 * kMiB), {16 * kKiB, 32 * kMiB}, {64 * kKiB, 512 * kMiB}}) {
    const ScopedPageBytes pages(page);
    CHECK(TransparentHugePageBytes() == huge);
  }
  uint64_t told = 0;
  std::ifstream("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") >> told;
  const ScopedPageBytes own(getauxval(AT_PAGESZ));
  if (told != 0) CHECK(TransparentHugePageBytes() == told);
}

}  // namespace kvkeep
