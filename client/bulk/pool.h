// BulkPool: the connections to the daemon's bulk door, and the threads that make calls by them.
// Internal to the library.
//
// A call has a connection to itself. A thread that waits for its call makes it itself, if a
// connection to a Unix socket is free; else one of the pool's threads does. A connection that
// cannot be had is tried again after a pause; calls meanwhile are told so at once.
//
// Thread-safe.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/bulk/stream.h"
#include "client/transport/backoff.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

class BulkPool {
 public:
  struct Options {
    std::string endpoint;
    SecurityOptions security;
    uint32_t connections = 1;
    Deadline backoff_min{50}, backoff_max{2'000};
  };
  // A call: is given a connection that was greeted, or UNAVAILABLE, or CANCELLED if the pool stops.
  // Returns whether the connection may be used again.
  using Call = absl::AnyInvocable<bool(absl::StatusOr<BulkStream*> stream) &&>;

  explicit BulkPool(Options options);
  ~BulkPool();  // as Stop

  // Makes the call; inside this, perhaps, if the caller waits for it (CallerWaits).
  void Make(BulkStream::Time deadline, Call call);
  // Breaks calls off, and returns when no call runs any more. Idempotent.
  void Stop();

 private:
  struct Connection {
    std::unique_ptr<BulkStream> stream;  // null: to be made
  };
  struct Queued {
    BulkStream::Time deadline;
    Call call;
  };

  void Run();
  Connection* TakeFree() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Serve(Connection* connection, Queued queued);
  absl::StatusOr<BulkStream*> Ready(Connection* connection, BulkStream::Time deadline);
  absl::Status Connect(Connection* connection, BulkStream::Time deadline);
  // Notes that a call uses the stream: Stop breaks it.
  absl::Status Use(BulkStream* stream);

  const Options options_;
  const bool inline_calls_;  // a thread that waits for its call may make it
  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Connection> connections_;  // a connection in use is its user's
  std::vector<Connection*> free_ ABSL_GUARDED_BY(mu_);
  std::vector<BulkStream*> in_use_ ABSL_GUARDED_BY(mu_);  // to be broken by Stop
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mu_);
  Backoff backoff_ ABSL_GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point next_try_ ABSL_GUARDED_BY(mu_);
  absl::Status why_away_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);  // made when needed
};

}  // namespace kvkeep::client
