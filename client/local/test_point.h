// The test points of the local path (tiers/base/test_point.h), in the order of a client's life:
// connected, hello-sent, welcomed, segments-mapped, namespace-open, get-sent, get-leased,
// piece-wait, staging-mapped, staging-filled, put-sent, part-filled, put-copied, release-queued,
// release-sent; on the GPU path gpu-sent, at which no test kills, as that needs a GPU (tests/gpu).
#pragma once

#include "tiers/base/test_point.h"

namespace kvkeep::client {

using kvkeep::TestPoint;

}  // namespace kvkeep::client
