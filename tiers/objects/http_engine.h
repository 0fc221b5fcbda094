// HttpEngine: the seam to HTTP. Requests are handed over and answered later, each once.
//
// Start, Cancel and RunAt return at once. All callbacks and tasks run on a thread of the engine,
// one after another, never inside a call and with no lock held. Memory that a request names (its
// body, its sink) is touched until `done` has begun, no longer. Everything has a limit: bytes of
// head and body, time in all, to the first byte and of a body that drips, requests that wait.
// Thread-safe.
//
// A server's refusal is not an error: any status number is an OK answer. Errors are those of the
// way there: Unavailable (no connection, or it broke), DeadlineExceeded (too late, too slow),
// ResourceExhausted (a limit, named), Cancelled, DataLoss (the answer is not HTTP), and the sink's
// own. Bytes that a sink was given before an error are not a whole body.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/strong_int.h"
#include "tiers/base/units.h"
#include "tiers/objects/http_header.h"

namespace kvkeep {

using HttpCall = StrongInt<struct HttpCallTag, uint64_t>;

struct HttpHead {
  int status = 0;
  HttpHeaders headers;
  std::optional<uint64_t> content_bytes;  // Content-Length, where there is one
};

// Takes the body of a success (2xx). A status that is not OK ends the request.
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  // Called once, before the first byte.
  virtual absl::Status Begin(const HttpHead& head) = 0;
  // Called in order, with each byte once.
  virtual absl::Status Take(std::span<const std::byte> bytes) = 0;
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;      // encoded, sent as it is
  HttpHeaders headers;  // all but Content-Length and Expect
  std::vector<std::span<const std::byte>> body;
  HttpSink* sink = nullptr;  // null: a success's body goes where an error's does

  MonotonicTime deadline{MonotonicTime::max()};  // of all of it, also waiting for its turn
  // Limit of the time from the end of sending the request to the answer's first byte.
  std::chrono::milliseconds first_byte_within{30'000};
  uint64_t max_body_bytes = 512 * kMiB;           // that the sink is given
  // Least speed of its body, up or down, once that has begun; none: the engine's own limit.
  std::optional<uint64_t> least_bytes_per_second;
};

struct HttpAnswer {
  absl::Status status;  // of the way; all below is as far as it came
  HttpHead head;
  std::string text;            // the body that no sink was given, cut at a limit
  uint64_t body_bytes = 0;     // that the sink was given
  uint64_t sent_bytes = 0;     // of the request's body
  bool connected = false;      // there was a connection
  bool slow = false;           // it was late while its body moved, too slowly
  std::chrono::nanoseconds first_byte{0}, total{0};  // since its turn came
};

class HttpEngine {
 public:
  using Done = absl::AnyInvocable<void(HttpAnswer) &&>;

  virtual ~HttpEngine() = default;
  virtual HttpCall Start(HttpRequest request, Done done) = 0;
  // `done` runs soon, with Cancelled, unless it is running already. Does nothing for a call that is
  // over.
  virtual void Cancel(HttpCall call) = 0;
  // Runs a task where callbacks run, at that time or soon after: tasks in the order of their times,
  // those of one time in the order that they were handed over. Destroyed unrun when the engine goes
  // first.
  virtual void RunAt(MonotonicTime at, Executor::Task task) = 0;
};

}  // namespace kvkeep
