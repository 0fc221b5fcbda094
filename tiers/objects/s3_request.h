// A request to a bucket, from its call to its answer; an attempt to send it; and an endpoint to
// send it to. For S3Store alone, on its engine's thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "tiers/objects/s3_store.h"

namespace kvkeep {

struct S3Store::Endpoint {
  Endpoint(EndpointNumber of_number, const S3StoreOptions& options, RandomSource* random)
      : number(of_number),
        breaker(options.breaker, random),
        window(options.window, random),
        hedger(options.hedge) {}

  bool WouldAdmit(MonotonicTime now) const {
    return breaker.state() == Breaker::State::kClosed ||
           (breaker.state() == Breaker::State::kOpen && breaker.RetryIn(now).count() == 0);
  }

  const EndpointNumber number;
  Breaker breaker;
  RequestWindow window;
  Hedger hedger;
  std::deque<Request*> reads, writes;  // that wait for their turn
  bool plain_puts = false;             // it knows no If-None-Match
  MonotonicTime body_at{MonotonicTime::min()};    // some of a large body came last
  MonotonicTime absent_at{MonotonicTime::min()};  // it said last that an object is absent
};

struct S3Store::Request {
  static constexpr uint64_t kSmallBytes = 64 * 1024;
  enum class Stage : uint8_t {
    kNew,
    kWaiting,  // in a queue of its endpoint
    kSent,     // one or two attempts are on their way
    kPausing,  // until it is sent again
    kForKeys,  // newer than those it was denied with
  };

  // As it was handed over.
  ObjectCall call;
  ObjectVerb verb = ObjectVerb::kGet;
  GetObject get;  // its name is that of a deletion as well
  PutObject put;
  ListObjects list;
  ObjectSink* sink = nullptr;
  Done done;
  ListDone list_done;
  MonotonicTime begun{0}, deadline{0};

  Stage stage = Stage::kNew;
  Endpoint* endpoint = nullptr;
  std::optional<MonotonicTime> wake_at;
  uint32_t attempts = 0;
  bool cancelled = false, hedged = false;
  bool renewed = false, clock_set = false, made_plain = false;  // each is done once
  bool mends_itself = false;  // what ended the last attempt, by one of these
  bool yields = false;        // the last attempt ended for the others' sake
  uint32_t yielded = 0;       // attempts that did
  // Its name was refused, and an absent name is asked for in its place (CheckAbsentInstead).
  bool checks = false;
  S3Answer refused;  // that name's
  SharedS3Keys denied_keys;
  MonotonicTime keys_until{0};

  std::unique_ptr<Attempt> first, second;  // that are on their way; the second is the hedge
  Attempt* winner = nullptr;               // the attempt that has the sink
  S3Answer last;                           // of the last attempt that counts

  // State of the sink.
  bool sink_begun = false;
  absl::Status sink_said;
  ObjectHead head;
  std::optional<uint64_t> promised;  // bytes that there are of the range
  uint64_t given = 0;
  std::string page;  // of a list
  std::chrono::nanoseconds first_byte{0};

  const std::string& name() const { return verb == ObjectVerb::kPut ? put.name : get.name; }
  // Returns whether it reads at most the header page of an image: then it never makes way for
  // others.
  bool small() const { return get.range.has_value() && get.range->bytes <= kSmallBytes; }
  // Returns whether the read may end now and go on later where it was.
  bool may_yield() const {
    return verb == ObjectVerb::kGet && !small() && !checks && !cancelled && sink_said.ok() &&
           (!sink_begun || (promised.has_value() && !head.etag.empty()));
  }
  bool writes() const { return verb == ObjectVerb::kPut || verb == ObjectVerb::kDelete; }
  ObjectQuestion question() const {
    if (checks) return {ObjectVerb::kGet, false};
    return {verb, verb == ObjectVerb::kPut ? put.if_absent && !made_plain
                                           : !get.if_match.empty() || sink_begun};
  }
};

class S3Store::Attempt final : public HttpSink {
 public:
  Attempt(S3Store* store, Request* request, Endpoint* endpoint, RequestWindow::Ticket slot,
          Breaker::Ticket ticket, bool hedge)
      : slot(slot),
        ticket(ticket),
        hedge(hedge),
        endpoint(*endpoint),
        sent_at(store->now()),
        resumes(request->sink_begun && !request->checks),
        store_(*store),
        request_(*request) {}

  absl::Status Begin(const HttpHead& head) override;
  absl::Status Take(std::span<const std::byte> bytes) override;

  HttpCall http;
  const RequestWindow::Ticket slot;
  const Breaker::Ticket ticket;
  const bool hedge;
  Endpoint& endpoint;
  const MonotonicTime sent_at;
  const bool resumes;  // where the one before broke off
  SharedS3Keys keys;
  std::optional<ByteRange> asked;  // of the object
  // Reasons why its answer was not taken to its end.
  bool lost = false;       // the other one was first
  bool dropped = false;    // cancelled, as the other one was enough
  bool full = false;       // all that was asked for came, and more
  bool other = false;      // it is of another version than the first part
  bool bad_head = false;   // it is of something else than what was asked for
  bool timed = false;      // its first byte
  bool yields = false;     // cancelled, as fewer bodies go at a time now

 private:
  absl::Status BeginRead(const HttpHead& head);

  S3Store& store_;
  Request& request_;
};

}  // namespace kvkeep
