// SessionKeeper: the session that a transport keeps with the daemon. Internal to the library.
//
// One thread has the transport open a session, declare the client's namespaces in it, and wait for
// its end; then it starts over after a backoff. Calls get the open session at once, or the reason
// why there is none. `Session` has `uint64_t epoch() const`, the number it was opened with, and
// `bool over() const`: true if none of its calls can be answered any more. Thread-safe.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/transport/declared_namespaces.h"
#include "client/transport/transport.h"
#include "tiers/base/check.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

inline absl::Status BeingDestroyed() {
  return absl::CancelledError("the kvkeep client is being destroyed");
}

template <typename Session>
class SessionKeeper {
 public:
  using Ptr = std::shared_ptr<Session>;
  using Time = std::chrono::steady_clock::time_point;

  struct Options {
    std::string where;          // the daemon's address, for messages
    Deadline default_deadline;  // of its own requests
    Deadline backoff_min, backoff_max;
  };
  struct Ready {
    Ptr session;
    NamespaceDigest digest;
  };
  // The transport's part.
  class Opener {
   public:
    virtual ~Opener() = default;
    // On the keeper's thread: opens the session of that number and publishes it (Begin, Publish).
    // Returns why it is over or could not be opened.
    virtual absl::Status RunSession(uint64_t epoch) = 0;
    // Called on the keeper's thread while there is no session. Returns the time of the next call.
    virtual Time Rest(Time /*now*/) { return Time::max(); }
    // Asks the daemon to open that namespace in this session. Thread-safe.
    virtual absl::StatusOr<NamespaceDigest> AskToOpen(const Ptr& session, const NamespaceSpec& spec,
                                                      Deadline deadline) = 0;
  };

  // `opener` must outlive it.
  SessionKeeper(Options options, Opener* opener) : options_(std::move(options)), opener_(opener) {}
  ~SessionKeeper() { KVKEEP_CHECK(!thread_.joinable()); }

  void Start() {
    thread_ = std::thread([this] { Run(); });
  }
  // Opens and hands out no more sessions. Returns the sessions that are open or being opened, for
  // the transport to end. Then call Join.
  std::vector<Ptr> Stop() ABSL_LOCKS_EXCLUDED(mu_);
  void Join() { thread_.join(); }
  const std::atomic<bool>& stopping() const { return stopping_; }

  // ---- for Opener::RunSession

  // Notes a session that answers, before its namespaces are declared. Not OK: the client is being
  // destroyed.
  absl::Status Begin(const Ptr& session) ABSL_LOCKS_EXCLUDED(mu_);
  // Declares the undeclared namespaces, and lets calls have the session from now on. Returns false
  // if something came in between: try again. `prepared` runs under the keeper's lock.
  absl::StatusOr<bool> Publish(const Ptr& session, const ServerLimits& limits,
                               absl::FunctionRef<bool()> prepared) ABSL_LOCKS_EXCLUDED(mu_);
  // Gives the session to no more calls.
  void Withdraw() ABSL_LOCKS_EXCLUDED(mu_);
  // Declares the namespaces that the daemon has not answered in this session. Not OK: it did not
  // answer now.
  absl::Status DeclareAll(const Ptr& session) ABSL_LOCKS_EXCLUDED(mu_);
  bool AllDeclared(const Ptr& session) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return namespaces_.Undeclared(session->epoch()).empty();
  }

  // ---- for calls

  // Returns when the first attempt to open a session has succeeded or failed, or at `timeout`.
  absl::Status WaitFirstAttempt(Deadline timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for a session that is open and not over: a session that is over stays here until its
  // thread has ended it, and another one follows.
  bool WaitConnected(Deadline timeout) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status why_away() const ABSL_LOCKS_EXCLUDED(mu_) {  // OK: a session is open
    MutexLock lock(&mu_);
    return session_ != nullptr ? absl::OkStatus() : away_reason_;
  }
  ServerLimits limits() const ABSL_LOCKS_EXCLUDED(mu_) {  // of the last session
    MutexLock lock(&mu_);
    return limits_;
  }
  void AddStats(ClientStats* stats) const {
    stats->sessions_opened = sessions_opened_;
    stats->calls = calls_;
    stats->failed_fast = failed_fast_;
  }

  // Returns the open session, or why there is none. Counts a call.
  absl::StatusOr<Ptr> Current() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the open session, and the namespace's digest there.
  absl::StatusOr<Ready> Prepare(Transport::Ns binding);
  // Returns null if no session is open.
  Ptr session() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return stopping_ ? nullptr : session_;
  }
  // Returns the namespace, declared now if a session is open, and by each later session. Sets
  // `undeclared` to the session in which the daemon did not answer, and why. Not OK: it was
  // refused, or there are too many.
  struct Undeclared {
    Ptr session;
    absl::Status why;
  };
  absl::StatusOr<DeclaredNamespaces::Ptr> OpenNamespace(const NamespaceSpec& spec,
                                                        Deadline deadline, Undeclared* undeclared)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  static Time Now() { return std::chrono::steady_clock::now(); }
  bool usable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return session_ != nullptr && !session_->over();
  }

  absl::Status Declare(const Ptr& session, DeclaredNamespace* ns, Deadline deadline);

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns true if the keeper stops.
  bool SleepUntil(Time time) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  Opener* const opener_;
  std::thread thread_;  // runs Run(), from Start to Join
  std::atomic<uint64_t> sessions_opened_{0}, calls_{0}, failed_fast_{0};

  mutable Mutex mu_;
  CondVar changed_;
  std::atomic<bool> stopping_{false};  // set under mu_
  bool attempted_ ABSL_GUARDED_BY(mu_) = false;
  Ptr session_ ABSL_GUARDED_BY(mu_);  // null: away
  Ptr opening_ ABSL_GUARDED_BY(mu_);  // connected, its namespaces not declared yet
  absl::Status away_reason_ ABSL_GUARDED_BY(mu_) = absl::UnavailableError("not connected yet");
  ServerLimits limits_ ABSL_GUARDED_BY(mu_);
  DeclaredNamespaces namespaces_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client

#include "client/transport/session_keeper_inl.h"
