// DeviceTimes: how long the operations of one device take, as its owner sees them: from Submit,
// waiting for a place in the kernel included, until the last byte was moved; and syncs. Operations
// that fail count as well. Thread-safe.
#pragma once

#include "tiers/base/histogram.h"

namespace kvkeep {

struct DeviceTimes {
  Histogram read, write, sync;
};

// The times of a device at one moment.
struct DeviceTimesCounts {
  HistogramCounts read{.bounds = &kDurationBounds};
  HistogramCounts write{.bounds = &kDurationBounds};
  HistogramCounts sync{.bounds = &kDurationBounds};

  static DeviceTimesCounts Of(const DeviceTimes& times) {
    return {times.read.counts(), times.write.counts(), times.sync.counts()};
  }
};

}  // namespace kvkeep
