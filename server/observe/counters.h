// The one table of counters: status and metrics are both made from it, so they cannot disagree.
#pragma once

#include <cstdint>
#include <span>

#include "server/observe/server_state.h"
#include "tiers/store/snapshot.h"

namespace kvkeep {

struct MetricLabel {
  const char* name;
  const char* value;
};

// How a number is shown as a metric. Rows of one family follow one another in the table and differ
// by their labels.
struct MetricInfo {
  const char* family;  // without the prefix "kvkeep_"
  const char* help;
  bool gauge = false;
  double scale = 1;  // of the number, to make the unit in the family's name
  MetricLabel labels[2] = {};
};

struct StoreCounterInfo {
  const char* name;  // in Admin.Status: the field's
  uint64_t StoreCounters::*member;
  MetricInfo metric;
};
// Every field of StoreCounters, once (checked at compile time).
std::span<const StoreCounterInfo> StoreCounterTable();

struct ServerCounterInfo {
  const char* name;
  ServerCounters::Counter ServerCounters::*member;
  MetricInfo metric;
};
std::span<const ServerCounterInfo> ServerCounterTable();

struct LocalCounterInfo {
  const char* name;
  LocalCounters::Counter LocalCounters::*member;
  MetricInfo metric;
};
std::span<const LocalCounterInfo> LocalCounterTable();

}  // namespace kvkeep
