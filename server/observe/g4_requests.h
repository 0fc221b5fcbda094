// Adds metrics of requests to a bucket: how they ended, how many were sent again, how many are
// under way, and the offset of the server's clock. A shared directory has none.
#pragma once

#include "server/observe/metric_families.h"
#include "tiers/objects/s3_store.h"

namespace kvkeep {

void AddG4Requests(const S3StoreCounters& requests, MetricFamilies* out);
// Adds metrics of the keys that sign these requests.
void AddG4Keys(const KeyCounters& keys, MetricFamilies* out);

}  // namespace kvkeep
