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
      if (count == 0 && outcome > 0) continue;  // 60 series that never were
      out->Counter("g4_requests_total",
                   "Requests to the bucket by how they ended; one that was sent again counts once",
                   static_cast<double>(count),
                   {{"op", kVerbs[verb]},
                    {"outcome", std::string(NameOf(static_cast<ObjectOutcome>(outcome)))}});
    }
  }
  const auto counter = [out](const char* name, const char* help, uint64_t value,
                             MetricFamilies::Labels labels = {}) {
    out->Counter(name, help, static_cast<double>(value), std::move(labels));
  };
  counter("g4_attempts_total", "HTTP requests that were sent for these", requests.attempts);
  counter("g4_retries_total", "Attempts after one that failed", requests.retries);
  counter("g4_refused_retries_total", "Retries that their budget did not allow",
          requests.retries_refused);
  counter("g4_hedges_total",
          "Reads that were sent twice, as the first byte was late; won: the second was first",
          requests.hedges - requests.hedges_won, {{"won", "no"}});
  counter("g4_hedges_total", "", requests.hedges_won, {{"won", "yes"}});
  counter("g4_resumed_reads_total", "Reads that broke off and were gone on with",
          requests.resumed_reads);
  counter("g4_unasked_requests_total",
          "Requests that were not sent: no keys, too many wait, the bucket is away or full",
          requests.not_asked);
  counter("g4_throttled_total", "Attempts that the server answered with: slower",
          requests.throttled);
  counter("g4_slow_total", "Attempts whose bodies moved too slowly: fewer go at a time since",
          requests.slow);
  counter("g4_yielded_reads_total", "Reads that were cut for it, to go on where they were",
          requests.yielded_reads);
  counter("g4_breaker_opened_total", "Times that an endpoint was not to be asked for a while",
          requests.breaker_opened);
  counter("g4_renewed_keys_total", "Requests sent again with newer keys", requests.renewed);
  counter("g4_clock_set_total", "Requests sent again with the server's clock",
          requests.clock_set);
  counter("g4_plain_puts_total",
          "Puts without a condition, as the server knows none: an object may be put twice",
          requests.plain_puts);
  counter("g4_checked_refusals_total",
          "Refusals that were checked by an absent name: of one object, or of all requests",
          requests.refusals_checked);
  counter("g4_bytes_total", "Bytes of bodies", requests.read_bytes, {{"direction", "read"}});
  counter("g4_bytes_total", "", requests.written_bytes, {{"direction", "written"}});
  out->Gauge("g4_window_requests", "How many requests may be under way at once, all endpoints",
             requests.window);
  out->Gauge("g4_in_flight_requests", "How many are", requests.in_flight);
  out->Gauge("g4_clock_skew_seconds", "The server's clock before this machine's",
             static_cast<double>(requests.clock_skew_seconds));
}

void AddG4Keys(const KeyCounters& keys, MetricFamilies* out) {
  constexpr const char* kFetches = "g4_key_fetches_total";
  out->Counter(kFetches, "Times that the bucket's keys were asked for where they come from",
               static_cast<double>(keys.fetched), {{"result", "ok"}});
  out->Counter(kFetches, "", static_cast<double>(keys.failed), {{"result", "failed"}});
  out->Gauge("g4_keys_not_after_seconds", "Unix time when the bucket's keys end; 0: not known",
             static_cast<double>(keys.expires.value_or(UnixSeconds(0)).value()));
}

}  // namespace kvkeep
