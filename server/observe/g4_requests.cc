#include "server/observe/g4_requests.h"

#include <iterator>
#include <string>
#include <utility>

#include "tiers/objects/object_outcome.h"

namespace kvkeep {
namespace {

// In the order of ObjectVerb.
constexpr const char* kVerbs[] = {"get", "put", "delete", "list"};
static_assert(std::size(kVerbs) == S3StoreCounters::kVerbs);

}  // namespace

void AddG4Requests(const S3StoreCounters& requests, MetricFamilies* out) {
  for (size_t verb = 0; verb < S3StoreCounters::kVerbs; ++verb) {
    for (size_t outcome = 0; outcome < kObjectOutcomes; ++outcome) {
      const uint64_t count = requests.answers[verb][outcome];
      if (count == 0 && outcome > 0) continue;  // saves 60 series that are always zero
      out->Counter("g4_requests_total",
                   "Requests to the bucket by outcome; a request that was sent again counts once",
                   static_cast<double>(count),
                   {{"op", kVerbs[verb]},
                    {"outcome", std::string(NameOf(static_cast<ObjectOutcome>(outcome)))}});
    }
  }
  const auto counter = [out](const char* name, const char* help, uint64_t value,
                             MetricFamilies::Labels labels = {}) {
    out->Counter(name, help, static_cast<double>(value), std::move(labels));
  };
  counter("g4_attempts_total", "HTTP requests sent to the bucket, with those that were sent again",
          requests.attempts);
  counter("g4_retries_total", "HTTP requests sent after one that failed", requests.retries);
  counter("g4_refused_retries_total", "Retries that the budget of retries did not allow",
          requests.retries_refused);
  counter("g4_hedges_total",
          "Reads sent twice because the first byte was late; won: the second request was faster",
          requests.hedges - requests.hedges_won, {{"won", "no"}});
  counter("g4_hedges_total", "", requests.hedges_won, {{"won", "yes"}});
  counter("g4_resumed_reads_total", "Reads that broke off and were resumed",
          requests.resumed_reads);
  counter("g4_unasked_requests_total",
          "Requests not sent because there were no keys, too many waited, or the bucket was away "
          "or full",
          requests.not_asked);
  counter("g4_throttled_total", "HTTP requests that the server throttled", requests.throttled);
  counter("g4_slow_total",
          "HTTP requests whose bodies moved too slowly, after which fewer are sent at a time",
          requests.slow);
  counter("g4_yielded_reads_total",
          "Reads interrupted because bodies moved too slowly, to be resumed later",
          requests.yielded_reads);
  counter("g4_breaker_opened_total", "Times that requests to an endpoint were stopped for a while",
          requests.breaker_opened);
  counter("g4_renewed_keys_total", "Requests sent again with newer keys", requests.renewed);
  counter("g4_clock_set_total", "Requests sent again with the server's clock",
          requests.clock_set);
  counter("g4_plain_puts_total",
          "Puts without a condition, because the server supports none; an object may be put twice",
          requests.plain_puts);
  counter("g4_checked_refusals_total",
          "Refusals checked with an absent name, to tell those of one object from those of all "
          "requests",
          requests.refusals_checked);
  counter("g4_bytes_total", "Bytes of request and response bodies", requests.read_bytes,
          {{"direction", "read"}});
  counter("g4_bytes_total", "", requests.written_bytes, {{"direction", "written"}});
  out->Gauge("g4_window_requests", "Requests that may be under way at once, to all endpoints",
             requests.window);
  out->Gauge("g4_in_flight_requests", "Requests under way now, to all endpoints",
             requests.in_flight);
  out->Gauge("g4_clock_skew_seconds",
             "Seconds by which the server's clock is ahead of this machine's",
             static_cast<double>(requests.clock_skew_seconds));
}

void AddG4Keys(const KeyCounters& keys, MetricFamilies* out) {
  constexpr const char* kFetches = "g4_key_fetches_total";
  out->Counter(kFetches, "Times that the bucket's keys were fetched from their source",
               static_cast<double>(keys.fetched), {{"result", "ok"}});
  out->Counter(kFetches, "", static_cast<double>(keys.failed), {{"result", "failed"}});
  out->Gauge("g4_keys_not_after_seconds", "Unix time when the bucket's keys expire; 0: not known",
             static_cast<double>(keys.expires.value_or(UnixSeconds(0)).value()));
}

}  // namespace kvkeep
