#include "tools/bench/measured.h"

#include <algorithm>

namespace kvkeep::bench {

void Measured::Add(const Measured& other, bool side_by_side) {
  seconds = side_by_side ? std::max(seconds, other.seconds) : seconds + other.seconds;
  ops += other.ops;
  chunks += other.chunks;
  bytes += other.bytes;
  copied_bytes += other.copied_bytes;
  failed_ops += other.failed_ops;
  if (first_failure.empty()) first_failure = other.first_failure;
  verified_bytes += other.verified_bytes;
  wrong_bytes += other.wrong_bytes;
  client_cpu_seconds += other.client_cpu_seconds;
  latency.Merge(other.latency);
  first_piece.Merge(other.first_piece);
}

Json ToWire(const Measured& m) {
  return {{"seconds", m.seconds},
          {"ops", m.ops},
          {"chunks", m.chunks},
          {"bytes", m.bytes},
          {"copied_bytes", m.copied_bytes},
          {"failed_ops", m.failed_ops},
          {"first_failure", m.first_failure},
          {"verified_bytes", m.verified_bytes},
          {"wrong_bytes", m.wrong_bytes},
          {"client_cpu_seconds", m.client_cpu_seconds},
          {"latency", HistogramToWire(m.latency)},
          {"first_piece", HistogramToWire(m.first_piece)}};
}

Measured FromWire(const Json& json) {
  Measured m;
  m.seconds = json.at("seconds");
  m.ops = json.at("ops");
  m.chunks = json.at("chunks");
  m.bytes = json.at("bytes");
  m.copied_bytes = json.at("copied_bytes");
  m.failed_ops = json.at("failed_ops");
  m.first_failure = json.at("first_failure");
  m.verified_bytes = json.at("verified_bytes");
  m.wrong_bytes = json.at("wrong_bytes");
  m.client_cpu_seconds = json.at("client_cpu_seconds");
  m.latency = HistogramFromWire(json.at("latency"));
  m.first_piece = HistogramFromWire(json.at("first_piece"));
  return m;
}

Json ToReport(const Measured& m) {
  Json report = {{"seconds", m.seconds},
                 {"ops", m.ops},
                 {"chunks", m.chunks},
                 {"bytes", m.bytes},
                 {"ops_per_second", m.ops_per_second()},
                 {"chunks_per_second", m.chunks_per_second()},
                 {"gb_per_second", m.gb_per_second()},
                 {"latency_us", HistogramToReport(m.latency)},
                 {"copied_bytes", m.copied_bytes},
                 {"client_cpu_seconds", m.client_cpu_seconds},
                 {"failed_ops", m.failed_ops},
                 {"verified_bytes", m.verified_bytes},
                 {"wrong_bytes", m.wrong_bytes}};
  if (m.first_piece.count() > 0) report["first_piece_us"] = HistogramToReport(m.first_piece);
  if (!m.first_failure.empty()) report["first_failure"] = m.first_failure;
  return report;
}

}  // namespace kvkeep::bench
