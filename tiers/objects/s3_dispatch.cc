// The parts of S3Store that give requests their turn, send them, and handle their answers.
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/objects/s3_request.h"
#include "tiers/objects/xml.h"

namespace kvkeep {
namespace {

using enum ObjectOutcome;

// The largest difference to our clock at which a server's clock is believed. It is limited, because
// a request that is signed for another time is valid at that time for anybody who has it.
constexpr std::chrono::seconds kMostClockStep = std::chrono::hours(24);

// This hash must stay the same on all nodes, for ever, since the caches of gateways depend on it.
uint64_t HashOfName(absl::string_view name) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash ^ (hash >> 32);
}

// Returns whether the error may concern this verb alone: a user who may not write or list may still
// read.
bool OfThisVerbAlone(ObjectVerb verb, const S3Answer& answer) {
  return verb != ObjectVerb::kGet && answer.error.code == "AccessDenied";
}

// Returns a name beside `name`, so that the same rights and rules apply to both.
std::string AbsentNameBeside(const std::string& name, uint64_t random) {
  return absl::StrCat(name.substr(0, kMaxObjectNameBytes - 17), "-",
                      absl::Hex(random, absl::kZeroPad16));
}

}  // namespace

// ---- turns

S3Store::Endpoint* S3Store::Choose(const Request& request) {
  const size_t from = HashOfName(request.name()) % endpoints_.size();
  for (size_t i = 0; i < endpoints_.size(); ++i) {
    Endpoint& endpoint = *endpoints_[(from + i) % endpoints_.size()];
    if (endpoint.WouldAdmit(now()) && TurnComes(request, endpoint)) return &endpoint;
  }
  return nullptr;
}

// A write waits in any case, since its caller would come back with the next one at once.
bool S3Store::TurnComes(const Request& request, const Endpoint& endpoint) const {
  return request.writes() || endpoint.window.held_until() < request.deadline;
}

bool S3Store::MayBeAskedSoon(const Request& request) const {
  return std::any_of(endpoints_.begin(), endpoints_.end(), [&](const auto& endpoint) {
    // An endpoint that is being probed may be well by then.
    const bool admits = endpoint->breaker.state() != Breaker::State::kOpen ||
                        endpoint->breaker.RetryIn(now()) <= options_.retry.longest_pause;
    return admits && TurnComes(request, *endpoint);
  });
}

void S3Store::RefuseEndpointless(Request& request) {
  for (const auto& endpoint : endpoints_) {
    if (!endpoint->WouldAdmit(now())) continue;
    return RefuseUnasked(request, kThrottled, "HeldBack",
                         "the server asked for less, and its turn would come too late");
  }
  const bool misconfigured = endpoints_.front()->breaker.misconfigured();
  RefuseUnasked(request, misconfigured ? kMisconfigured : kBroken, "NotAsked",
                "no endpoint is asked at the moment");
}

void S3Store::Dispatch(Request& request, bool first) {
  KVKEEP_CHECK(request.first == nullptr && request.second == nullptr);
  KVKEEP_CHECK(request.stage != Request::Stage::kWaiting);
  request.stage = Request::Stage::kNew;
  if (now() >= request.deadline) {
    return RefuseUnasked(request, kLate, "NoTurn", "its deadline has passed");
  }
  if (credentials_.Current() == nullptr) {
    return RefuseUnasked(request, kDenied, "NoCredentials",
                         std::string(credentials_.status().message()));
  }
  if (request.verb == ObjectVerb::kPut && now() < no_puts_before_) {
    return RefuseUnasked(request, kFull, "PutsAreOff", "it took no puts a moment ago");
  }
  Endpoint* const endpoint = Choose(request);
  if (endpoint == nullptr) return RefuseEndpointless(request);
  std::deque<Request*>& queue = request.writes() ? endpoint->writes : endpoint->reads;
  if (queue.size() >= options_.max_waiting) {
    return RefuseUnasked(request, kThrottled, "TooManyWait",
                         absl::StrCat(options_.max_waiting, " requests wait already"));
  }
  request.stage = Request::Stage::kWaiting;
  request.endpoint = endpoint;
  WakeAt(request, request.deadline);
  queue.insert(first ? queue.begin() : queue.end(), &request);
  Pump(*endpoint);
}

void S3Store::LeaveQueue(Request& request) {
  if (request.stage != Request::Stage::kWaiting) return;
  std::deque<Request*>& queue =
      request.writes() ? request.endpoint->writes : request.endpoint->reads;
  const auto at = std::find(queue.begin(), queue.end(), &request);
  KVKEEP_CHECK(at != queue.end());
  queue.erase(at);
  request.stage = Request::Stage::kNew;
}

void S3Store::Pump(Endpoint& endpoint) {
  while (StartNext(endpoint, RequestWindow::Kind::kRead)) {
  }
  while (StartNext(endpoint, RequestWindow::Kind::kWrite)) {
  }
  if (!endpoint.WouldAdmit(now())) DispatchAnew(endpoint);
}

void S3Store::DispatchAnew(Endpoint& endpoint) {
  std::deque<Request*> moved;
  moved.swap(endpoint.reads);
  moved.insert(moved.end(), endpoint.writes.begin(), endpoint.writes.end());
  endpoint.writes.clear();
  for (Request* const request : moved) {
    KVKEEP_CHECK(request->stage == Request::Stage::kWaiting && request->endpoint == &endpoint);
    request->stage = Request::Stage::kNew;
  }
  for (Request* const request : moved) Dispatch(*request);
}

bool S3Store::StartNext(Endpoint& endpoint, RequestWindow::Kind kind) {
  std::deque<Request*>& queue =
      kind == RequestWindow::Kind::kRead ? endpoint.reads : endpoint.writes;
  if (queue.empty() || !endpoint.WouldAdmit(now())) return false;
  const auto slot = endpoint.window.TryStart(kind, now());
  if (!slot.has_value()) return false;
  const auto ticket = endpoint.breaker.Admit(now());
  KVKEEP_CHECK(ticket.has_value());
  Request& request = *queue.front();
  queue.pop_front();
  KVKEEP_CHECK(request.stage == Request::Stage::kWaiting && request.endpoint == &endpoint);
  Send(request, endpoint, *slot, *ticket);
  return true;
}

// ---- on the way

void S3Store::Send(Request& request, Endpoint& endpoint, RequestWindow::Ticket slot,
                   Breaker::Ticket ticket) {
  const bool is_hedge = request.first != nullptr;
  KVKEEP_CHECK(request.second == nullptr);
  KVKEEP_CHECK(is_hedge || request.stage == Request::Stage::kWaiting);
  KVKEEP_CHECK(!is_hedge || (request.hedged && request.verb == ObjectVerb::kGet));
  auto attempt = std::make_unique<Attempt>(this, &request, &endpoint, slot, ticket, is_hedge);
  Attempt& sent = *attempt;
  sent.keys = credentials_.Current();
  (is_hedge ? request.second : request.first) = std::move(attempt);
  if (request.attempts == 0) retries_.CountRequest();
  if (!is_hedge) {
    ++request.attempts;
    request.stage = Request::Stage::kSent;
    request.endpoint = &endpoint;
    const auto patience = endpoint.hedger.Patience();
    const bool may_hedge = request.verb == ObjectVerb::kGet && !request.hedged &&
                           !request.checks && !request.sink_begun && patience.has_value();
    WakeAt(request, may_hedge ? now() + *patience : MonotonicTime::max());
  }
  ++counters_.attempts;
  counters_.resumed_reads += sent.resumes;
  sent.http = http_.Start(MakeHttp(request, sent), [this, &request, &sent](HttpAnswer answer) {
    OnAnswer(request, sent, std::move(answer));
  });
}

HttpRequest S3Store::MakeHttp(const Request& request, Attempt& attempt) {
  const SigningContext signing{&signer_, attempt.keys, ServerTime()};
  const EndpointNumber to = attempt.endpoint.number;
  HttpRequest http;
  switch (request.question().verb) {
    case ObjectVerb::kGet: {
      if (request.checks) {
        http = MakeGet(urls_, to, signing, {AbsentNameBeside(request.name(), random_.NextU64()),
                                            ByteRange{0, kBlockBytes}});
        http.sink = &attempt;
        http.max_body_bytes = kMaxXmlBytes;
        break;
      }
      GetObject get = request.get;
      if (attempt.resumes) {
        KVKEEP_CHECK(request.promised.has_value() && request.given < *request.promised);
        KVKEEP_CHECK(!request.head.etag.empty());
        const uint64_t first = get.range.has_value() ? get.range->first : 0;
        get.range = ByteRange{first + request.given, *request.promised - request.given};
        get.if_match = request.head.etag;
      }
      attempt.asked = get.range;
      http = MakeGet(urls_, to, signing, get);
      http.sink = &attempt;
      break;
    }
    case ObjectVerb::kPut: {
      PutObject put = request.put;
      put.if_absent = put.if_absent && !request.made_plain && !attempt.endpoint.plain_puts;
      http = MakePut(urls_, to, signing, put);
      break;
    }
    case ObjectVerb::kDelete: http = MakeDelete(urls_, to, signing, request.name()); break;
    case ObjectVerb::kList:
      http = MakeList(urls_, to, signing, request.list);
      http.sink = &attempt;  // a page is longer than the text of an error
      http.max_body_bytes = kMaxXmlBytes;
      break;
  }
  http.deadline = request.deadline;
  http.first_byte_within = options_.first_byte_within;
  // A request that is alone has no speed limit: it is as fast as it can be.
  const auto kind = request.writes() ? RequestWindow::Kind::kWrite : RequestWindow::Kind::kRead;
  if (attempt.endpoint.window.is_least(kind)) http.least_bytes_per_second = 1;
  return http;
}

void S3Store::Hedge(Request& request) {
  KVKEEP_CHECK(request.stage == Request::Stage::kSent && request.endpoint != nullptr);
  Endpoint& endpoint = *request.endpoint;
  if (request.hedged || request.winner != nullptr || request.cancelled) return;
  if (endpoint.breaker.state() != Breaker::State::kClosed) return;
  const auto slot = endpoint.window.TryStart(RequestWindow::Kind::kRead, now());
  if (!slot.has_value()) return;
  if (!endpoint.hedger.TryHedge()) return endpoint.window.Ended(*slot);
  request.hedged = true;
  Send(request, endpoint, *slot, endpoint.breaker.Admit(now()).value());
}

void S3Store::DropOther(Request& request, const Attempt& attempt) {
  KVKEEP_CHECK(request.first.get() == &attempt || request.second.get() == &attempt);
  Attempt* const other =
      request.first.get() == &attempt ? request.second.get() : request.first.get();
  if (other == nullptr || other->dropped) return;
  other->dropped = true;
  http_.Cancel(other->http);
}

// ---- answers

S3Answer S3Store::Judge(const Request& request, const Attempt& attempt,
                        const HttpAnswer& http) const {
  S3Answer answer = ReadAnswer(request.question(), http, ServerTime());
  const bool all_came = request.verb == ObjectVerb::kGet && request.winner == &attempt &&
                        request.promised.has_value() && request.given == *request.promised;
  // An answer without an S3 code is a proxy's page or a redirect.
  if (answer.error.code.empty() && http.head.status >= 300) {
    answer.error.code = absl::StrCat("HTTP ", http.head.status);
  }
  if (!http.status.ok()) answer.error.message = std::string(http.status.message());
  if (request.checks) return answer;
  if (request.verb == ObjectVerb::kGet && answer.outcome == kMisconfigured &&
      now() <= attempt.endpoint.absent_at + options_.absent_proves_for) {
    answer.outcome = kRefused;
  } else if (attempt.bad_head) {
    answer.outcome = kBroken;
    answer.error.code = "OtherRange";
  } else if (attempt.other) {
    answer.outcome = kChanged;
  } else if (!request.sink_said.ok()) {
    answer.outcome = kCancelled;
    answer.error.message = std::string(request.sink_said.message());
  } else if (all_came) {
    answer.outcome = kOk;
    answer.error = {};
  } else if (request.verb == ObjectVerb::kGet && answer.outcome == kOk &&
             request.promised.has_value()) {
    answer.outcome = kBroken;  // it ended without an error, but too soon
  }
  return answer;
}

// Returns whether the request may succeed with newer keys, another clock or no condition, and has
// not tried that before.
bool S3Store::MendsItself(Request& request, const Attempt& attempt, const S3Answer& answer) {
  switch (answer.outcome) {
    case kDenied:
      if (request.renewed || !credentials_.Expired(attempt.keys)) return false;
      request.renewed = true;
      request.denied_keys = attempt.keys;
      ++counters_.renewed;
      return true;
    case kSkewed: {
      if (request.clock_set || !answer.head.answered.has_value()) return false;
      // Without TLS, anybody on the network could make us sign requests for a later time.
      if (!absl::StartsWith(urls_.Bucket(attempt.endpoint.number, {}).origin, "https://")) {
        return false;
      }
      const auto here = static_cast<int64_t>(clock_.UnixMicros() / 1'000'000);
      const std::chrono::seconds step(answer.head.answered->value() - here);
      if (step > kMostClockStep || step < -kMostClockStep) return false;
      clock_offset_ = step;
      request.clock_set = true;
      ++counters_.clock_set;
      return true;
    }
    case kUnsupported:
      if (request.verb != ObjectVerb::kPut || !request.put.if_absent || request.made_plain) {
        return false;
      }
      attempt.endpoint.plain_puts = true;
      request.made_plain = true;
      ++counters_.plain_puts;
      return true;
    case kMisconfigured:
      if (request.checks || request.verb == ObjectVerb::kList ||
          OfThisVerbAlone(request.verb, answer)) {
        return false;
      }
      request.checks = true;
      request.refused = answer;
      ++counters_.refusals_checked;
      return true;
    default: return false;
  }
}

void S3Store::RefuseAlone(Request& request) {
  request.last = request.refused;
  if (request.verb == ObjectVerb::kGet) request.last.outcome = kRefused;
  if (request.verb != ObjectVerb::kPut) return;
  no_puts_before_ = now() + options_.puts_off_for;
  MutexLock lock(&mu_);
  last_error_ = request.refused.error;
}

void S3Store::TellWindow(const Attempt& attempt, const S3Answer& answer) {
  RequestWindow& window = attempt.endpoint.window;
  const Consequence then = ConsequenceOf(answer.outcome);
  if (then.slows) {
    ++counters_.throttled;
    return window.Throttled(attempt.slot, now(), answer.retry_after);
  }
  if (answer.slow) {
    ++counters_.slow;
    return window.Slow(attempt.slot, now());
  }
  if (then.serves) return window.Served(attempt.slot);
  window.Ended(attempt.slot);
}

bool S3Store::WaitedLong(const Attempt& attempt) const {
  // The request waited behind our own bodies, which fill the line.
  if (!attempt.timed && attempt.endpoint.body_at > attempt.sent_at) return false;
  const auto from = attempt.timed ? options_.late_counts_from : options_.late_counts_from / 2;
  return now() - attempt.sent_at >= from;
}

void S3Store::TellBreaker(const Request& request, const Attempt& attempt, const S3Answer& answer,
                          bool stays) {
  Breaker& breaker = attempt.endpoint.breaker;
  const Consequence then = ConsequenceOf(answer.outcome);
  const bool for_somebody = stays && (then.opens || then.renews);
  if (answer.outcome == kFull ||
      (for_somebody && OfThisVerbAlone(request.question().verb, answer))) {
    if (request.verb == ObjectVerb::kPut) no_puts_before_ = now() + options_.puts_off_for;
    MutexLock lock(&mu_);
    last_error_ = answer.error;
    return breaker.Serves(attempt.ticket, now());
  }
  // A cut request counts as served: whatever ended it, its head came in time.
  const bool cut = attempt.timed && (answer.outcome == kCancelled || answer.slow);
  if (then.serves || attempt.lost || cut) {
    return breaker.Serves(attempt.ticket, now());
  }
  if (for_somebody) {
    breaker.Misconfigured(attempt.ticket, now());
  } else if (then.fails && (answer.outcome != kLate || (!answer.slow && WaitedLong(attempt)))) {
    breaker.Fails(attempt.ticket,
                  answer.connection_failed ? Breaker::Failure::kConnection
                                           : Breaker::Failure::kAnswer,
                  now());
  } else {
    return breaker.Abandons(attempt.ticket, now());
  }
  MutexLock lock(&mu_);
  last_error_ = answer.error;
}

void S3Store::OnAnswer(Request& request, Attempt& attempt, HttpAnswer http) {
  KVKEEP_CHECK(request.stage == Request::Stage::kSent);
  KVKEEP_CHECK(request.first.get() == &attempt || request.second.get() == &attempt);
  const S3Answer answer = Judge(request, attempt, http);
  Endpoint& endpoint = attempt.endpoint;
  counters_.written_bytes += http.sent_bytes;
  // An attempt that lost, or was dropped in favor of the other, does not decide the request.
  const bool counts = !attempt.lost && !attempt.dropped;
  const bool mends_itself = counts && MendsItself(request, attempt, answer);
  if (answer.head.answered.has_value()) {
    counters_.clock_skew_seconds =
        answer.head.answered->value() - static_cast<int64_t>(clock_.UnixMicros() / 1'000'000);
  }
  if (answer.outcome == kAbsent) endpoint.absent_at = now();
  const MonotonicTime held_until = endpoint.window.held_until();
  TellWindow(attempt, answer);
  TellBreaker(request, attempt, answer, counts && !mends_itself);
  const Consequence then = ConsequenceOf(answer.outcome);
  if (then.serves && !attempt.timed && request.verb == ObjectVerb::kGet && counts) {
    endpoint.hedger.Served(now() - attempt.sent_at);  // most of these answers are kAbsent
  }
  const bool was_winner = request.winner == &attempt;
  KVKEEP_CHECK(!was_winner || !attempt.lost);
  if (was_winner) request.winner = nullptr;
  if (counts) {
    request.last = answer;
    request.mends_itself = mends_itself;
    request.yields = attempt.yields || answer.slow;
    if (then.serves || was_winner || mends_itself) DropOther(request, attempt);
  }
  if (request.first.get() == &attempt) {
    request.first = std::move(request.second);
  } else {
    request.second.reset();
  }
  if (request.first == nullptr) Conclude(request);
  if (answer.slow) YieldReads(endpoint);
  if (endpoint.window.held_until() > held_until) DispatchAnew(endpoint);
  Pump(endpoint);
  Arm();
  Publish();
}

void S3Store::YieldReads(Endpoint& endpoint) {
  std::vector<Request*> reads;
  for (const auto& [call, request] : requests_) {
    const bool on_its_way =
        request->stage == Request::Stage::kSent && request->endpoint == &endpoint;
    if (on_its_way && request->may_yield()) reads.push_back(request.get());
  }
  if (reads.size() <= endpoint.window.size()) return;
  const auto end = reads.end() - endpoint.window.size();
  std::sort(reads.begin(), reads.end(), [](const Request* a, const Request* b) {
    return std::pair(a->given, b->call) < std::pair(b->given, a->call);
  });
  std::for_each(reads.begin(), end, [this](Request* request) {
    for (Attempt* attempt : {request->first.get(), request->second.get()}) {
      if (attempt == nullptr || attempt->dropped) continue;
      attempt->yields = true;
      http_.Cancel(attempt->http);
    }
  });
}

void S3Store::Conclude(Request& request) {
  KVKEEP_CHECK(request.first == nullptr && request.second == nullptr);
  KVKEEP_CHECK(request.winner == nullptr);
  const bool absent = request.last.outcome == kAbsent || request.last.outcome == kOk;
  if (request.checks && absent) RefuseAlone(request);
  const bool told = request.last.outcome == kOk || request.last.outcome == kExists;
  if (request.cancelled && !told) {
    request.last.outcome = kCancelled;
    return Finish(request);
  }
  if (!Again(request)) Finish(request);
}

// Returns whether the request is sent again, now or later.
bool S3Store::Again(Request& request) {
  KVKEEP_CHECK(request.stage == Request::Stage::kSent && request.attempts > 0);
  // A read continues where it was if it knows the version of the bytes that it has.
  const bool goes_on = request.sink_begun && !request.checks;
  if (goes_on && (!request.promised.has_value() || request.head.etag.empty())) return false;
  const ObjectOutcome outcome = request.last.outcome;
  if (request.yields && request.may_yield() && (outcome == kCancelled || outcome == kLate)) {
    ++counters_.yielded_reads;
    ++request.yielded;
    Dispatch(request, true);
    return true;
  }
  if (request.mends_itself && outcome == kDenied) {
    request.stage = Request::Stage::kForKeys;
    request.keys_until = std::min<MonotonicTime>(now() + options_.keys_within, request.deadline);
    WakeAt(request, now());
    return true;
  }
  if (request.mends_itself) {
    Dispatch(request);
    return true;
  }
  // Spends no retry if no endpoint will be asked.
  if (!ConsequenceOf(outcome).again || !MayBeAskedSoon(request)) return false;
  const auto pause =
      retries_.TryRetry(request.attempts - request.yielded, now(), request.deadline,
                        random_.NextU64());
  if (!pause.has_value()) return false;
  request.stage = Request::Stage::kPausing;
  WakeAt(request, now() + *pause);
  return true;
}

}  // namespace kvkeep
