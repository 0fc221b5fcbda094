// A header page as it lies beyond the node: sealed, since it tells digest, key and part of a chunk
// even when its payload is encrypted. Pure functions.
//
//   byte 0     the first 4064 bytes of the page under AES-256-GCM (IV of zeros, as each key is used
//              once): key = HMAC-SHA256(header key, nonce)
//   byte 4064  nonce (16), tag (16). No format of a header page has anything there.
#pragma once

#include "tiers/base/image.h"
#include "tiers/base/random.h"
#include "tiers/crypt/secret.h"

namespace kvkeep {

// Seals the page in place. REQUIRES: its last 32 bytes are zero.
void SealHeader(const Secret& header_key, RandomSource* random, HeaderPage page);
// Opens the page in place. Returns false, and leaves the page worthless, if it was not sealed with
// this key or was changed since.
bool OpenHeader(const Secret& header_key, HeaderPage page);

}  // namespace kvkeep
