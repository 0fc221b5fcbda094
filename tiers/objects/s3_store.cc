#include "tiers/objects/s3_store.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/objects/s3_request.h"
#include "tiers/objects/xml.h"

namespace kvkeep {

S3Store::S3Store(S3Urls urls, const S3StoreOptions& options, std::unique_ptr<HttpEngine> engine,
                 S3Credentials* credentials, Clock* clock, RandomSource* random)
    : urls_(std::move(urls)),
      options_(options),
      credentials_(*credentials),
      clock_(*clock),
      random_(*random),
      signer_(urls_.region()),
      retries_(options.retry),
      engine_(std::move(engine)),
      http_(*engine_) {
  KVKEEP_CHECK(options.max_waiting > 0 && options.longest_request.count() > 0);
  KVKEEP_CHECK(options.first_byte_within.count() > 0 && options.keys_looked_for_each.count() > 0);
  KVKEEP_CHECK(urls_.endpoints() > 0);
  for (uint32_t i = 0; i < urls_.endpoints(); ++i) {
    endpoints_.push_back(std::make_unique<Endpoint>(EndpointNumber(i), options_, random));
  }
  Publish();
}

S3Store::~S3Store() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  engine_.reset();
  engine_gone_ = true;
  // No other thread is here any more. A callback of an answer may hand over more requests.
  while (true) {
    TakeOrders();
    if (requests_.empty()) break;
    Request& request = *requests_.begin()->second;
    LeaveQueue(request);
    request.last = {.outcome = ObjectOutcome::kCancelled, .error = {.message = "stopped"}};
    Finish(request);
  }
  KVKEEP_CHECK(wakes_.empty());
}

// ---- orders

ObjectCall S3Store::Get(GetObject get, ObjectSink* sink, Done done) {
  KVKEEP_CHECK(sink != nullptr && (!get.range.has_value() || get.range->bytes > 0));
  auto request = std::make_unique<Request>();
  request->verb = ObjectVerb::kGet;
  request->deadline = get.deadline;
  request->get = std::move(get);
  request->sink = sink;
  request->done = std::move(done);
  return HandOver(std::move(request));
}

ObjectCall S3Store::Put(PutObject put, Done done) {
  auto request = std::make_unique<Request>();
  request->verb = ObjectVerb::kPut;
  request->deadline = put.deadline;
  request->put = std::move(put);
  request->done = std::move(done);
  return HandOver(std::move(request));
}

ObjectCall S3Store::Delete(DeleteObject deletion, Done done) {
  auto request = std::make_unique<Request>();
  request->verb = ObjectVerb::kDelete;
  request->deadline = deletion.deadline;
  request->get.name = std::move(deletion.name);
  request->done = std::move(done);
  return HandOver(std::move(request));
}

ObjectCall S3Store::List(ListObjects list, ListDone done) {
  auto request = std::make_unique<Request>();
  request->verb = ObjectVerb::kList;
  request->deadline = list.deadline;
  request->list = std::move(list);
  request->list_done = std::move(done);
  return HandOver(std::move(request));
}

ObjectCall S3Store::HandOver(std::unique_ptr<Request> request) {
  KVKEEP_CHECK(request->verb == ObjectVerb::kList || !request->name().empty());
  KVKEEP_CHECK(request->name().size() <= kMaxObjectNameBytes);
  KVKEEP_CHECK(request->verb == ObjectVerb::kList ? request->list_done != nullptr
                                                  : request->done != nullptr);
  request->begun = now();
  request->deadline =
      std::min<MonotonicTime>(request->deadline, request->begun + options_.longest_request);
  MutexLock lock(&mu_);
  const ObjectCall call(++last_call_);
  request->call = call;
  handed_over_.push_back(std::move(request));
  if (!told_ && !stopping_) http_.RunAt(MonotonicTime::min(), [this] { TakeOrders(); });
  told_ = true;
  return call;
}

void S3Store::Cancel(ObjectCall call) {
  MutexLock lock(&mu_);
  cancelled_.push_back(call);
  if (!told_ && !stopping_) http_.RunAt(MonotonicTime::min(), [this] { TakeOrders(); });
  told_ = true;
}

void S3Store::TakeOrders() {
  std::vector<std::unique_ptr<Request>> handed_over;
  std::vector<ObjectCall> cancelled;
  {
    MutexLock lock(&mu_);
    handed_over.swap(handed_over_);
    cancelled.swap(cancelled_);
    told_ = false;
  }
  for (std::unique_ptr<Request>& taken : handed_over) {
    Request& request = *taken;
    KVKEEP_CHECK(requests_.emplace(request.call, std::move(taken)).second);
    if (!engine_gone_) Dispatch(request);
  }
  for (const ObjectCall call : cancelled) CancelNow(call);
  Arm();
  Publish();
}

void S3Store::CancelNow(ObjectCall call) {
  const auto at = requests_.find(call);
  if (at == requests_.end()) return;
  Request& request = *at->second;
  request.cancelled = true;
  if (request.stage != Request::Stage::kSent) {
    LeaveQueue(request);
    request.last = {.outcome = ObjectOutcome::kCancelled};
    return Finish(request);
  }
  for (Attempt* attempt : {request.first.get(), request.second.get()}) {
    if (attempt != nullptr) http_.Cancel(attempt->http);
  }
}

// ---- time

void S3Store::WakeAt(Request& request, MonotonicTime at) {
  if (request.wake_at.has_value()) {
    KVKEEP_CHECK(wakes_.erase({*request.wake_at, request.call}) == 1);
  }
  request.wake_at = at;
  KVKEEP_CHECK(wakes_.emplace(at, request.call).second);
}

// A waiting request may get its turn though no request ends: a hold is over, or writes are let in
// again.
void S3Store::Arm() {
  if (engine_gone_) return;
  constexpr std::chrono::milliseconds kLookAgain{100};
  MonotonicTime next = wakes_.empty() ? MonotonicTime::max() : wakes_.begin()->first;
  for (const auto& endpoint : endpoints_) {
    if (endpoint->reads.empty() && endpoint->writes.empty()) continue;
    const MonotonicTime held_until = endpoint->window.held_until();
    next = std::min(next, held_until > now() ? held_until : now() + kLookAgain);
  }
  if (next == MonotonicTime::max() || (!armed_.empty() && *armed_.begin() <= next)) return;
  KVKEEP_CHECK(armed_.insert(next).second);
  http_.RunAt(next, [this, next] {
    KVKEEP_CHECK(armed_.erase(next) == 1);
    Wake();
  });
}

void S3Store::Wake() {
  while (!wakes_.empty() && wakes_.begin()->first <= now()) {
    Request& request = *requests_.at(wakes_.begin()->second);
    KVKEEP_CHECK(request.wake_at == wakes_.begin()->first);
    wakes_.erase(wakes_.begin());
    request.wake_at.reset();
    WakeRequest(request);
  }
  for (const auto& endpoint : endpoints_) Pump(*endpoint);
  Arm();
  Publish();
}

void S3Store::WakeRequest(Request& request) {
  switch (request.stage) {
    case Request::Stage::kNew: break;
    case Request::Stage::kSent: return Hedge(request);
    case Request::Stage::kWaiting:
      LeaveQueue(request);
      return RefuseUnasked(request, ObjectOutcome::kLate, "NoTurn",
                           "its turn did not come before its deadline");
    case Request::Stage::kPausing: return Dispatch(request);
    case Request::Stage::kForKeys:
      if (credentials_.Current() != request.denied_keys) return Dispatch(request);
      // Or nothing newer is to come: the same keys came again, or the source failed.
      if (now() >= request.keys_until || !credentials_.Expired(request.denied_keys)) {
        return Finish(request);
      }
      return WakeAt(request, std::min<MonotonicTime>(now() + options_.keys_looked_for_each,
                                                     request.keys_until));
  }
  KVKEEP_CHECK(false);
}

UnixSeconds S3Store::ServerTime() const {
  return UnixSeconds(static_cast<int64_t>(clock_.UnixMicros() / 1'000'000) +
                     clock_offset_.count());
}

// ---- the end

void S3Store::RefuseUnasked(Request& request, ObjectOutcome outcome, absl::string_view code,
                            std::string why) {
  ++counters_.not_asked;
  // The result of the last attempt says more.
  if (request.attempts > 0) return Finish(request);
  request.last = {.outcome = outcome, .error = {std::string(code), std::move(why), ""}};
  Finish(request);
}

void S3Store::Finish(Request& finished) {
  KVKEEP_CHECK(finished.first == nullptr && finished.second == nullptr);
  KVKEEP_CHECK(finished.winner == nullptr);
  if (finished.wake_at.has_value()) {
    KVKEEP_CHECK(wakes_.erase({*finished.wake_at, finished.call}) == 1);
  }
  const auto at = requests_.find(finished.call);
  KVKEEP_CHECK(at != requests_.end());
  KVKEEP_CHECK(finished.stage != Request::Stage::kWaiting);
  const std::unique_ptr<Request> request = std::move(at->second);
  requests_.erase(at);
  ObjectAnswer answer{.outcome = request->last.outcome,
                      .error = std::move(request->last.error),
                      .head = std::move(request->last.head),
                      .given = request->given,
                      .attempts = request->attempts,
                      .first_byte = request->first_byte,
                      .total = now() - request->begun};
  if (request->sink_begun) answer.head = std::move(request->head);
  ObjectListing listing;
  if (request->verb == ObjectVerb::kList && answer.ok()) {
    absl::StatusOr<ObjectListing> page = ParseS3Listing(request->page);
    if (page.ok()) {
      for (ListedObject& object : page->objects) {
        object.name = std::string(absl::StripPrefix(object.name, urls_.prefix()));
      }
      listing = *std::move(page);
    } else {
      answer.outcome = ObjectOutcome::kBroken;
      answer.error.message = std::string(page.status().message());
    }
  }
  ++counters_.answers[static_cast<size_t>(request->verb)][static_cast<size_t>(answer.outcome)];
  if (request->verb == ObjectVerb::kList) {
    return std::move(request->list_done)(std::move(answer), std::move(listing));
  }
  std::move(request->done)(std::move(answer));
}

// ---- what is shown

void S3Store::Publish() {
  counters_.window = counters_.in_flight = 0;
  counters_.retries = retries_.retries();
  counters_.retries_refused = retries_.refused();
  counters_.breaker_opened = counters_.hedges = 0;
  std::vector<EndpointState> states;
  for (const auto& endpoint : endpoints_) {
    counters_.window += endpoint->window.size();
    counters_.in_flight += endpoint->window.in_flight();
    counters_.breaker_opened += endpoint->breaker.times_opened();
    counters_.hedges += endpoint->hedger.hedges();
    EndpointState state{.misconfigured = endpoint->breaker.misconfigured()};
    // While it is probed, no other request is let in.
    if (endpoint->breaker.state() == Breaker::State::kProbing) state.ask_at = MonotonicTime::max();
    if (endpoint->breaker.state() == Breaker::State::kOpen) {
      state.ask_at = now() + endpoint->breaker.RetryIn(now());
    }
    states.push_back(state);
  }
  MutexLock lock(&mu_);
  published_ = std::move(states);
  puts_off_until_ = no_puts_before_;
  shown_ = counters_;
}

ObjectStoreHealth S3Store::health() const {
  const MonotonicTime at = now();
  const bool has_keys = credentials_.Current() != nullptr;
  ObjectStoreHealth health;
  MutexLock lock(&mu_);
  health.takes_puts = at >= puts_off_until_;
  MonotonicTime ask_at = MonotonicTime::max();
  bool misconfigured = false;
  for (const EndpointState& endpoint : published_) {
    ask_at = std::min(ask_at, endpoint.ask_at);
    misconfigured = misconfigured || endpoint.misconfigured;
  }
  if (ask_at > at) {
    health.state = misconfigured ? ObjectStoreHealth::State::kMisconfigured
                                 : ObjectStoreHealth::State::kAway;
    if (ask_at != MonotonicTime::max()) health.retry_in = ask_at - at;
  }
  if (!has_keys) {
    health.state = ObjectStoreHealth::State::kMisconfigured;
    health.error = {"NoCredentials", std::string(credentials_.status().message()), ""};
  } else if (!health.writable()) {
    health.error = last_error_;
  }
  health.what_to_do = std::string(AdviceFor(health.error.code));
  return health;
}

void S3StoreCounters::Add(const S3StoreCounters& other) {
  for (size_t verb = 0; verb < kVerbs; ++verb) {
    for (size_t i = 0; i < answers[verb].size(); ++i) answers[verb][i] += other.answers[verb][i];
  }
  using Counter = uint64_t S3StoreCounters::*;
  using S = S3StoreCounters;
  for (const Counter counter :
       {&S::attempts, &S::retries, &S::retries_refused, &S::hedges, &S::hedges_won,
        &S::resumed_reads, &S::not_asked, &S::throttled, &S::slow, &S::yielded_reads,
        &S::breaker_opened, &S::renewed, &S::clock_set, &S::plain_puts, &S::refusals_checked,
        &S::read_bytes, &S::written_bytes}) {
    this->*counter += other.*counter;
  }
  window += other.window;
  in_flight += other.in_flight;
  if (clock_skew_seconds == 0) clock_skew_seconds = other.clock_skew_seconds;
}

S3StoreCounters S3Store::counters() const {
  MutexLock lock(&mu_);
  return shown_;
}

}  // namespace kvkeep
