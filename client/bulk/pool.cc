#include "client/bulk/pool.h"

#include <absl/strings/match.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "client/bulk/frames.h"
#include "client/internal/await.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using std::chrono::steady_clock;

}  // namespace

BulkPool::BulkPool(Options options)
    : options_(std::move(options)),
      inline_calls_(absl::StartsWith(options_.endpoint, "unix:")),
      connections_(options_.connections),
      backoff_(options_.backoff_min, options_.backoff_max) {
  for (Connection& connection : connections_) free_.push_back(&connection);
}

BulkPool::~BulkPool() { Stop(); }

void BulkPool::Make(BulkStream::Time deadline, Call call) {
  const bool caller_waits = CallerWaits::Take();
  Queued queued{.deadline = deadline, .call = std::move(call)};
  Connection* connection = nullptr;
  {
    MutexLock lock(&mu_);
    if (!stopping_) {
      if (caller_waits && inline_calls_ && queue_.empty()) connection = TakeFree();
      if (connection == nullptr) {
        queue_.push_back(std::move(queued));
        if (threads_.size() < connections_.size()) threads_.emplace_back([this] { Run(); });
        changed_.NotifyOne();
        return;
      }
    }
  }
  if (connection != nullptr) return Serve(connection, std::move(queued));
  (void)std::move(queued.call)(absl::CancelledError("the client is being destroyed"));
}

BulkPool::Connection* BulkPool::TakeFree() {
  if (free_.empty()) return nullptr;
  Connection* const connection = free_.back();
  free_.pop_back();
  return connection;
}

void BulkPool::Run() {
  pthread_setname_np(pthread_self(), "kvkeep-bulk");
  // OpenSSL's writes raise it when the other end is gone.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  while (true) {
    Queued queued;
    Connection* connection = nullptr;
    {
      MutexLock lock(&mu_);
      while (!stopping_ && (queue_.empty() || free_.empty())) changed_.Wait(&mu_);
      if (stopping_) return;
      queued = std::move(queue_.front());
      queue_.pop_front();
      connection = TakeFree();
    }
    Serve(connection, std::move(queued));
  }
}

void BulkPool::Serve(Connection* connection, Queued queued) {
  const absl::StatusOr<BulkStream*> stream = Ready(connection, queued.deadline);
  bool good = std::move(queued.call)(stream);
  std::unique_ptr<BulkStream> broken;
  {
    MutexLock lock(&mu_);
    if (stream.ok()) std::erase(in_use_, *stream);
    if (!good) broken = std::move(connection->stream);
    free_.push_back(connection);
    changed_.NotifyAll();
  }
}

absl::StatusOr<BulkStream*> BulkPool::Ready(Connection* connection, BulkStream::Time deadline) {
  if (connection->stream != nullptr && !connection->stream->idle()) connection->stream.reset();
  if (connection->stream == nullptr) {
    {
      MutexLock lock(&mu_);
      if (!why_away_.ok() && steady_clock::now() < next_try_) return why_away_;
    }
    const absl::Status connected = Connect(connection, deadline);
    MutexLock lock(&mu_);
    why_away_ = connected;
    if (connected.ok()) {
      backoff_.Reset();
    } else {
      next_try_ = steady_clock::now() + backoff_.After(steady_clock::duration(0));
      return connected;
    }
  } else {
    KVKEEP_RETURN_IF_ERROR(Use(connection->stream.get()));
  }
  return connection->stream.get();
}

absl::Status BulkPool::Connect(Connection* connection, BulkStream::Time deadline) {
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<BulkStream> stream,
                          BulkStream::Connect(options_.endpoint, options_.security, deadline));
  KVKEEP_RETURN_IF_ERROR(Use(stream.get()));
  const absl::Status greeted = Greet(*stream, deadline);
  if (greeted.ok()) {
    connection->stream = std::move(stream);
  } else {
    MutexLock lock(&mu_);
    std::erase(in_use_, stream.get());
  }
  return greeted;
}

absl::Status BulkPool::Use(BulkStream* stream) {
  MutexLock lock(&mu_);
  if (stopping_) return absl::CancelledError("the client is being destroyed");
  in_use_.push_back(stream);
  return absl::OkStatus();
}

void BulkPool::Stop() {
  std::vector<std::thread> threads;
  std::deque<Queued> left;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (BulkStream* const stream : in_use_) stream->Break();
    threads.swap(threads_);
    left.swap(queue_);
    changed_.NotifyAll();
  }
  for (Queued& queued : left) {
    (void)std::move(queued.call)(absl::CancelledError("the client is being destroyed"));
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&mu_);
  while (free_.size() < connections_.size()) changed_.Wait(&mu_);  // threads that wait for calls
}

}  // namespace kvkeep::client
