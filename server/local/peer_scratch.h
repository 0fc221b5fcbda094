// PeerScratch: state that the peers of one loop share: memory for serving a request, reused for the
// next request of any peer, and the line of puts that wait for space. One thread, the loop's.
#pragma once

#include <vector>

#include "proto/local/message.h"
#include "server/local/keys_call.h"
#include "server/local/put_line.h"

namespace kvkeep {

struct PeerScratch {
  PutLine line;
  local::MessageWriter reply{0, 0};
  KeysCall call;
  std::vector<local::Place> places;
  std::vector<local::ImageRun> runs;
};

}  // namespace kvkeep
