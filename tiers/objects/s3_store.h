// S3Store: ObjectStore over a bucket. Its parts decide and it obeys: credentials sign; for each
// endpoint a breaker, a window and a hedger say whether, when and how often a request is sent.
//
// All of it runs on the engine's thread, one thing after another. So a read and its hedge have one
// writer, and nothing here has a lock but what is published. Time and threads are the engine's.
//
// This is the only level of retries. It retries after connections that broke and servers that
// failed or asked for less, up to RetryBudget's limits, never past the deadline. Besides, it tries
// again once a request with newer keys, with the server's clock (over TLS, and up to a day away),
// or as a plain put where conditions are not known. A read that broke off goes on where it was,
// with the same version. A read whose first byte is late is sent twice: the attempt that is first
// has the sink, the other never touches it. Large reads are not cut into parts here; the caller
// that knows pieces does that (tiers/remote/bucket_source.h).
//
// Bodies that are slow share a line, mostly: fewer go at a time then. The reads that are too many,
// the least advanced ones, end, wait for another turn before all others, and go on where they were.
// This is not a failure, and takes no part of the retry budget.
//
// A request that is refused for good may be of one bad object, or show that no request will do. So
// an absent name is asked for in its place: if the answer is that it is absent, the object or the
// verb alone is refused; if not, the endpoint is not asked for a while.
//
// An endpoint whose breaker is open is skipped for the next one; if none is left, the answer comes
// at once. Requests for a name go to the same endpoint as long as that is well.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <array>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"
#include "tiers/base/random.h"
#include "tiers/objects/breaker.h"
#include "tiers/objects/credentials.h"
#include "tiers/objects/hedger.h"
#include "tiers/objects/http_engine.h"
#include "tiers/objects/object_store.h"
#include "tiers/objects/request_window.h"
#include "tiers/objects/retry_budget.h"
#include "tiers/objects/s3_requests.h"

namespace kvkeep {

struct S3StoreOptions {
  BreakerOptions breaker;
  // A server that limits the rate of requests takes them again within about this time: holds of a
  // second left most of its room unused.
  WindowOptions window{.first_hold = std::chrono::milliseconds(100)};
  HedgeOptions hedge;
  RetryOptions retry;
  size_t max_waiting = 4096;  // requests, at an endpoint; more are refused
  std::chrono::milliseconds longest_request{60'000};
  std::chrono::milliseconds first_byte_within{10'000};
  // Waiting this long for the end of an answer counts against the endpoint. Half of it counts if
  // the answer did not even begin: a search takes a second at most, and its second round has only
  // the rest.
  std::chrono::milliseconds late_counts_from{1000};
  std::chrono::seconds puts_off_for{60};  // when it is full, or takes no puts
  // An "absent" answer of this age at most proves that a refusal is of one object.
  std::chrono::milliseconds absent_proves_for{1000};
  std::chrono::milliseconds keys_within{5000}, keys_looked_for_each{50};
};

struct S3StoreCounters {
  static constexpr size_t kVerbs = 4;  // ObjectVerb's

  std::array<std::array<uint64_t, kObjectOutcomes>, kVerbs> answers{};
  uint64_t attempts = 0, retries = 0, retries_refused = 0;
  uint64_t hedges = 0, hedges_won = 0;
  uint64_t resumed_reads = 0;  // gone on with in the middle
  uint64_t not_asked = 0;      // for an open breaker, no keys, no room, or puts that are off
  uint64_t throttled = 0;      // attempts
  uint64_t slow = 0;           // attempts whose bodies were late, moving
  uint64_t yielded_reads = 0;  // cut for it, to go on later
  uint64_t breaker_opened = 0;
  uint64_t renewed = 0, clock_set = 0, plain_puts = 0, refusals_checked = 0;
  uint64_t read_bytes = 0, written_bytes = 0;
  uint32_t window = 0, in_flight = 0;  // now, of all endpoints
  int64_t clock_skew_seconds = 0;      // the server's clock before ours, by its last answer
  void Add(const S3StoreCounters& other);  // another store's; the skew where this has none
};

class S3Store final : public ObjectStore {
 public:
  // All pointers outlive this. The owner of the credentials ticks them.
  S3Store(S3Urls urls, const S3StoreOptions& options, std::unique_ptr<HttpEngine> engine,
          S3Credentials* credentials, Clock* clock, RandomSource* random);
  ~S3Store() override;

  ObjectCall Get(GetObject get, ObjectSink* sink, Done done) override;
  ObjectCall Put(PutObject put, Done done) override;
  ObjectCall Delete(DeleteObject request, Done done) override;
  ObjectCall List(ListObjects list, ListDone done) override;
  void Cancel(ObjectCall call) override;
  ObjectStoreHealth health() const override;

  S3StoreCounters counters() const;

 private:
  struct Request;  // s3_request.h
  class Attempt;
  struct Endpoint;

  ObjectCall HandOver(std::unique_ptr<Request> request);

  // All functions below run on the engine's thread, or in the destructor when that is gone.
  void TakeOrders();
  void CancelNow(ObjectCall call);
  void Wake();
  void WakeRequest(Request& request);
  void WakeAt(Request& request, MonotonicTime at);
  void Arm();

  // `first`: before those that wait.
  void Dispatch(Request& request, bool first = false);
  // Returns an endpoint that may be asked before the request's deadline, or null.
  Endpoint* Choose(const Request& request);
  bool TurnComes(const Request& request, const Endpoint& endpoint) const;
  // Returns whether some endpoint may be asked by the time of a retry.
  bool MayBeAskedSoon(const Request& request) const;
  void RefuseEndpointless(Request& request);
  void Pump(Endpoint& endpoint);
  // Dispatches the requests that wait there anew: each finds another endpoint, waits on, or is
  // refused.
  void DispatchAnew(Endpoint& endpoint);
  bool StartNext(Endpoint& endpoint, RequestWindow::Kind kind);
  void LeaveQueue(Request& request);
  void Hedge(Request& request);
  void Send(Request& request, Endpoint& endpoint, RequestWindow::Ticket slot,
            Breaker::Ticket ticket);
  void DropOther(Request& request, const Attempt& attempt);
  HttpRequest MakeHttp(const Request& request, Attempt& attempt);

  void OnAnswer(Request& request, Attempt& attempt, HttpAnswer http);
  S3Answer Judge(const Request& request, const Attempt& attempt, const HttpAnswer& http) const;
  bool MendsItself(Request& request, const Attempt& attempt, const S3Answer& answer);
  // Answers a refusal of one object, or of one verb.
  void RefuseAlone(Request& request);
  // Returns whether its lateness counts against the endpoint.
  bool WaitedLong(const Attempt& attempt) const;
  // Ends the least advanced reads beyond the number that may be under way now.
  void YieldReads(Endpoint& endpoint);
  void TellWindow(const Attempt& attempt, const S3Answer& answer);
  void TellBreaker(const Request& request, const Attempt& attempt, const S3Answer& answer,
                   bool stays);
  void Conclude(Request& request);
  bool Again(Request& request);

  void RefuseUnasked(Request& request, ObjectOutcome outcome, absl::string_view code,
                     std::string why);
  void Finish(Request& request);
  void Publish();

  MonotonicTime now() const { return clock_.Now(); }
  UnixSeconds ServerTime() const;

  const S3Urls urls_;
  const S3StoreOptions options_;
  S3Credentials& credentials_;
  Clock& clock_;
  RandomSource& random_;

  mutable Mutex mu_;
  uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Request>> handed_over_ ABSL_GUARDED_BY(mu_);
  std::vector<ObjectCall> cancelled_ ABSL_GUARDED_BY(mu_);
  bool told_ ABSL_GUARDED_BY(mu_) = false;  // the engine, of the two above
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // As last published. An endpoint may be asked from `ask_at` on.
  struct EndpointState {
    MonotonicTime ask_at{0};
    bool misconfigured = false;
  };
  std::vector<EndpointState> published_ ABSL_GUARDED_BY(mu_);
  MonotonicTime puts_off_until_ ABSL_GUARDED_BY(mu_){MonotonicTime::min()};
  ObjectError last_error_ ABSL_GUARDED_BY(mu_);
  S3StoreCounters shown_ ABSL_GUARDED_BY(mu_);

  // Fields of the engine's thread.
  SigV4Signer signer_;
  RetryBudget retries_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  absl::flat_hash_map<ObjectCall, std::unique_ptr<Request>> requests_;
  std::set<std::pair<MonotonicTime, ObjectCall>> wakes_;
  std::set<MonotonicTime> armed_;  // when the engine wakes this
  std::chrono::seconds clock_offset_{0};
  MonotonicTime no_puts_before_{MonotonicTime::min()};
  S3StoreCounters counters_;
  bool engine_gone_ = false;  // and its thread; only the destructor is left

  std::unique_ptr<HttpEngine> engine_;  // last: it answers into all of the above
  HttpEngine& http_;                    // the same, until it is gone
};

}  // namespace kvkeep
