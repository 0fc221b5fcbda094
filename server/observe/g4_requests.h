// The requests to a bucket as metrics show them: how they ended, what was sent again, how many are
// under way, how the server's clock is. Of a shared directory there are none.
#pragma once

#include "server/observe/metric_families.h"
#include "tiers/objects/s3_store.h"

namespace kvkeep {

void AddG4Requests(const S3StoreCounters& requests, MetricFamilies* out);
// And of the keys that they are signed with.
void AddG4Keys(const KeyCounters& keys, MetricFamilies* out);

}  // namespace kvkeep
