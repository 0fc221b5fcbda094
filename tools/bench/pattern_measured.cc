#include "tools/bench/pattern_measured.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace kvkeep::bench {
namespace {

struct CountField {
  const char* name;
  uint64_t PatternMeasured::*at;
};
constexpr std::array kCounts = {
    CountField{"requests", &PatternMeasured::requests},
    CountField{"asked_chunks", &PatternMeasured::asked_chunks},
    CountField{"found_chunks", &PatternMeasured::found_chunks},
    CountField{"stored_chunks", &PatternMeasured::stored_chunks},
    CountField{"refused_chunks", &PatternMeasured::refused_chunks},
    CountField{"recalled_bytes", &PatternMeasured::recalled_bytes},
    CountField{"stored_bytes", &PatternMeasured::stored_bytes},
    CountField{"prefixes", &PatternMeasured::prefixes},
    CountField{"prefixes_from_nvme", &PatternMeasured::prefixes_from_nvme},
    CountField{"faster_prefixes", &PatternMeasured::faster_prefixes},
    CountField{"stalls", &PatternMeasured::stalls},
    CountField{"failed_calls", &PatternMeasured::failed_calls},
    CountField{"verified_bytes", &PatternMeasured::verified_bytes},
    CountField{"wrong_bytes", &PatternMeasured::wrong_bytes}};

struct LatencyField {
  const char* name;
  LatencyHistogram PatternMeasured::*at;
};
constexpr std::array kLatencies = {LatencyField{"chunk_wait_us", &PatternMeasured::chunk_wait},
                                   LatencyField{"chunk_us", &PatternMeasured::chunk},
                                   LatencyField{"prefix_us", &PatternMeasured::prefix},
                                   LatencyField{"store_us", &PatternMeasured::store},
                                   LatencyField{"began_late_us", &PatternMeasured::began_late}};

uint64_t Nanoseconds(double seconds) { return static_cast<uint64_t>(std::max(seconds, 0.0) * 1e9); }

}  // namespace

double Recall::seconds() const {
  return std::accumulate(waits_seconds.begin(), waits_seconds.end(), 0.0);
}

void PatternMeasured::Count(const Recall& recall) {
  asked_chunks += recall.asked_chunks;
  found_chunks += recall.waits_seconds.size();
  recalled_bytes += recall.bytes;
  double since_due = 0;
  for (const double wait : recall.waits_seconds) {
    since_due += wait;
    chunk_wait.Record(Nanoseconds(wait));
    chunk.Record(Nanoseconds(since_due));
    stalls += wait > kStallSeconds;
  }
  if (recall.waits_seconds.empty()) return;
  ++prefixes;
  prefixes_from_nvme += recall.from_nvme;
  faster_prefixes += since_due < recall.recompute_seconds;
  prefix.Record(Nanoseconds(since_due));
}

void PatternMeasured::Fail(const std::string& why) {
  if (failed_calls++ == 0) first_failure = why;
}

void PatternMeasured::Add(const PatternMeasured& other) {
  seconds = std::max(seconds, other.seconds);
  client_cpu_seconds += other.client_cpu_seconds;
  if (first_failure.empty()) first_failure = other.first_failure;
  for (const CountField& field : kCounts) this->*field.at += other.*field.at;
  for (const LatencyField& field : kLatencies) (this->*field.at).Merge(other.*field.at);
}

Json ToWire(const PatternMeasured& measured) {
  Json json = {{"seconds", measured.seconds},
               {"client_cpu_seconds", measured.client_cpu_seconds},
               {"first_failure", measured.first_failure}};
  for (const CountField& field : kCounts) json[field.name] = measured.*field.at;
  for (const LatencyField& field : kLatencies) {
    json[field.name] = HistogramToWire(measured.*field.at);
  }
  return json;
}

PatternMeasured PatternMeasuredFromWire(const Json& json) {
  PatternMeasured measured{.seconds = json.at("seconds"),
                           .first_failure = json.at("first_failure"),
                           .client_cpu_seconds = json.at("client_cpu_seconds")};
  for (const CountField& field : kCounts) measured.*field.at = json.at(field.name);
  for (const LatencyField& field : kLatencies) {
    measured.*field.at = HistogramFromWire(json.at(field.name));
  }
  return measured;
}

Json ToReport(const PatternMeasured& measured) {
  Json json = {{"seconds", measured.seconds}, {"client_cpu_seconds", measured.client_cpu_seconds}};
  for (const CountField& field : kCounts) json[field.name] = measured.*field.at;
  if (!measured.first_failure.empty()) json["first_failure"] = measured.first_failure;
  for (const LatencyField& field : kLatencies) {
    json[field.name] = HistogramToReport(measured.*field.at);
  }
  return json;
}

}  // namespace kvkeep::bench
