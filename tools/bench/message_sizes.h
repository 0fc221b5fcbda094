// How many bytes a call of the local protocol puts on the socket and gets back, from the structs of
// proto/local/protocol.h: what a bare ping-pong must carry to be compared with it. Free functions.
#pragma once

#include <cstddef>

namespace kvkeep::bench {

struct MessageSizes {
  size_t request_bytes = 0;
  size_t reply_bytes = 0;
};

// A get of `keys` present chunks, one part and one run each, which gives the lease of an earlier
// one back on the way.
MessageSizes GetMessages(size_t keys);
// A lookup of `keys` keys with one part, without a lease.
MessageSizes LookupMessages(size_t keys);
// A put of `chunks` chunks of one run each, without metadata.
MessageSizes PutMessages(size_t chunks);

}  // namespace kvkeep::bench
