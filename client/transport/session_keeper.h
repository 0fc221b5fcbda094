// SessionKeeper: the session that a transport keeps with the daemon. Internal to the library.
//
// One thread has the transport open a session, declare the client's namespaces in it, and wait for
// its end; then it starts over after a backoff. Calls get the session that is open, or are told why
// there is none, at once. `Session` has `uint64_t epoch() const`, the number it was opened with,
// and `bool over() const`: no call of it can be answered any more. Thread-safe.
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
    Deadline default_deadline;  // of what it asks by itself
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

  // `opener` outlives it.
  SessionKeeper(Options options, Opener* opener) : options_(std::move(options)), opener_(opener) {}
  ~SessionKeeper() { KVKEEP_CHECK(!thread_.joinable()); }

  void Start() {
    thread_ = std::thread([this] { Run(); });
  }
  // No session is given out or opened any more. Returns the sessions that are open or being opened,
  // for the transport to end. Then call Join.
  std::vector<Ptr> Stop() ABSL_LOCKS_EXCLUDED(mu_);
  void Join() { thread_.join(); }
  const std::atomic<bool>& stopping() const { return stopping_; }

  // ---- for Opener::RunSession

  // The session answers; its namespaces are not declared yet. Not OK: the client is being
  // destroyed.
  absl::Status Begin(const Ptr& session) ABSL_LOCKS_EXCLUDED(mu_);
  // Declares the namespaces that are not yet, and lets calls have the session from now on. False:
  // something came in between, another try is due. `prepared` runs under the keeper's lock.
  absl::StatusOr<bool> Publish(const Ptr& session, const ServerLimits& limits,
                               absl::FunctionRef<bool()> prepared) ABSL_LOCKS_EXCLUDED(mu_);
  // It is given to no more calls.
  void Withdraw() ABSL_LOCKS_EXCLUDED(mu_);
  // Declares what the daemon has not answered to in this session. Not OK: it did not answer now.
  absl::Status DeclareAll(const Ptr& session) ABSL_LOCKS_EXCLUDED(mu_);
  bool AllDeclared(const Ptr& session) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return namespaces_.Undeclared(session->epoch()).empty();
  }

  // ---- for calls

  // Returns when the first try to open a session has ended one way or the other, or at `timeout`.
  absl::Status WaitFirstAttempt(Deadline timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // A session that is over stands here until its thread has ended it, and another one follows.
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

  // The open session, or why there is none. Counts a call.
  absl::StatusOr<Ptr> Current() ABSL_LOCKS_EXCLUDED(mu_);
  // It, and what the namespace is called there.
  absl::StatusOr<Ready> Prepare(Transport::Ns binding);
  // Null: none is open.
  Ptr session() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return stopping_ ? nullptr : session_;
  }
  // The namespace, declared now if a session is open, else by each session to come. `undeclared`:
  // the session in which the daemon did not answer, and why. Not OK: it was refused, or there are
  // too many.
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
  // True: it is to stop.
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
