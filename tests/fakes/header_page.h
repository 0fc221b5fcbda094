// Header pages that image.cc's encoder does not write: changed ones made right again, and
// pages of earlier versions of kvkeep.
#pragma once

#include "tiers/base/bytes.h"
#include "tiers/base/hmac.h"
#include "tiers/base/image.h"

namespace kvkeep {

// Sets root and MAC to the page's contents, by its version (image.h).
inline void MakeHeaderRight(HeaderPage page, const MacKey& key) {
  constexpr size_t kVersionAt = 8, kRootAt = 2176, kMacAt = 2752;
  StoreAt<Digest128>(page.data() + kRootAt, Xxh3_128(page.first(kRootAt)));
  const size_t from = LoadAt<uint32_t>(page.data() + kVersionAt) < 3 ? kRootAt : 0;
  HmacSha256(key, page.subspan(from, kMacAt - from), page.subspan<kMacAt, kHmacSha256Bytes>());
}

// Converts a page of version 3 or 4 to version 1 or 2.
inline void MakeFormer(HeaderPage page, const MacKey& key) {
  page[8] = std::byte(static_cast<uint8_t>(page[8]) - 2);
  MakeHeaderRight(page, key);
}

}  // namespace kvkeep
