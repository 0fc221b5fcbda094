// CurlEngine: HttpEngine by libcurl, one thread with a curl_multi loop and its own connections.
//
// HTTP/1.1 only; no redirect, cookie, .netrc, compression or proxy of the environment. TLS 1.2 and
// up, certificates checked. A request waits in the engine's queue, not in libcurl's, whose queue
// knows no deadline. Connections are reused while they are young. A name lookup never holds up the
// loop: if it hangs, it is left to its thread.
//
// When bodies are slow, one is given up at a time, downloads first, the least advanced first: the
// others get its part of the line, and are measured anew. A body that stands still is always given
// up.
//
// The destructor cancels all requests, also those that a callback starts meanwhile. It answers all
// of them and joins the thread.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/objects/http_engine.h"

namespace kvkeep {

struct CurlEngineOptions {
  uint32_t connections = 64;    // at once: 1 to 1024
  uint32_t max_waiting = 4096;  // requests beyond those; more are refused
  uint64_t max_head_bytes = 64 * kKiB;
  uint64_t max_text_bytes = 64 * kKiB;  // of a body that no sink takes: the rest is dropped
  std::chrono::milliseconds connect_within{1000};
  std::chrono::milliseconds unacknowledged_for{10'000};  // TCP_USER_TIMEOUT
  std::chrono::seconds connection_idle{10}, connection_life{300}, names_kept{60};
  // A body, up or down, has to move this fast over each such stretch once it has begun.
  uint64_t least_bytes_per_second = kMiB;
  std::chrono::milliseconds slow_for{2000};
  uint64_t expect_continue_from_bytes = kMiB;
  std::chrono::milliseconds continue_within{200};
  // PEM file and folder (trusted_cas.h); both empty: the system's, looked for by Make.
  std::string ca_file, ca_folder;
  std::string proxy;  // empty: none
};

class CurlEngine final : public HttpEngine {
 public:
  // InvalidArgument names the option; Unavailable: libcurl cannot be set up. `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<CurlEngine>> Make(const CurlEngineOptions& options,
                                                          Clock* clock);
  ~CurlEngine() override;

  HttpCall Start(HttpRequest request, Done done) override;
  void Cancel(HttpCall call) override;
  void RunAt(MonotonicTime at, Executor::Task task) override;

 private:
  class Transfer;
  struct Waiting {
    HttpCall call;
    HttpRequest request;
    Done done;
  };
  struct FreeMulti {
    void operator()(void* multi) const;
  };

  CurlEngine(const CurlEngineOptions& options, Clock* clock,
             std::unique_ptr<void, FreeMulti> multi);

  // All functions below run on the loop's thread.
  void Loop();
  bool TakeOrders();  // false: stop
  void RunDue();
  void StartWaiting();
  void EndLate();
  void EndFinished();
  void EndAll();
  bool AnyStarted();
  void End(HttpCall call, absl::Status why);
  int PollMillis() const;

  const CurlEngineOptions options_;
  Clock& clock_;
  const std::unique_ptr<void, FreeMulti> multi_;

  Mutex mu_;
  uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Waiting> started_ ABSL_GUARDED_BY(mu_);
  std::vector<HttpCall> cancelled_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<MonotonicTime, Executor::Task>> ordered_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // Fields of the loop's thread.
  std::deque<Waiting> waiting_;
  std::multimap<MonotonicTime, Executor::Task> tasks_;  // by when they are due
  absl::flat_hash_map<HttpCall, std::unique_ptr<Transfer>> running_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace kvkeep
