// SessionKeeper's definitions. Included by session_keeper.h only.
#pragma once

#include <algorithm>

#include "client/transport/backoff.h"
#include "client/transport/session_keeper.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {

template <typename Session>
std::vector<typename SessionKeeper<Session>::Ptr> SessionKeeper<Session>::Stop() {
  MutexLock lock(&mu_);
  stopping_ = true;
  changed_.NotifyAll();
  std::vector<Ptr> sessions;
  for (const Ptr& session : {session_, opening_}) {
    if (session != nullptr) sessions.push_back(session);
  }
  return sessions;
}

template <typename Session>
absl::Status SessionKeeper<Session>::Begin(const Ptr& session) {
  MutexLock lock(&mu_);
  if (stopping_) return BeingDestroyed();
  opening_ = session;
  return absl::OkStatus();
}

template <typename Session>
absl::StatusOr<bool> SessionKeeper<Session>::Publish(const Ptr& session,
                                                     const ServerLimits& limits,
                                                     absl::FunctionRef<bool()> prepared) {
  KVKEEP_RETURN_IF_ERROR(DeclareAll(session));
  MutexLock lock(&mu_);
  if (stopping_) return BeingDestroyed();
  if (!namespaces_.Undeclared(session->epoch()).empty() || !prepared()) return false;
  session_ = session;
  opening_ = nullptr;
  limits_ = limits;
  attempted_ = true;
  ++sessions_opened_;
  changed_.NotifyAll();
  return true;
}

template <typename Session>
void SessionKeeper<Session>::Withdraw() {
  MutexLock lock(&mu_);
  session_ = opening_ = nullptr;
  changed_.NotifyAll();
}

template <typename Session>
absl::Status SessionKeeper<Session>::DeclareAll(const Ptr& session) {
  std::vector<DeclaredNamespaces::Ptr> missing;
  {
    MutexLock lock(&mu_);
    missing = namespaces_.Undeclared(session->epoch());
  }
  const Time until = Now() + options_.default_deadline;  // of all together
  for (const auto& ns : missing) {
    const auto left = std::chrono::duration_cast<Deadline>(until - Now());
    KVKEEP_RETURN_IF_ERROR(Declare(session, ns.get(), std::max(left, Deadline(1))));
  }
  return absl::OkStatus();
}

template <typename Session>
absl::Status SessionKeeper<Session>::WaitFirstAttempt(Deadline timeout) {
  const Time give_up = Now() + timeout;
  MutexLock lock(&mu_);
  while (!attempted_ && Now() < give_up) changed_.WaitFor(&mu_, give_up - Now());
  return session_ != nullptr ? absl::OkStatus() : away_reason_;
}

template <typename Session>
bool SessionKeeper<Session>::WaitConnected(Deadline timeout) {
  const Time give_up = Now() + timeout;
  MutexLock lock(&mu_);
  while (!usable() && !stopping_ && Now() < give_up) changed_.WaitFor(&mu_, give_up - Now());
  return usable();
}

template <typename Session>
absl::StatusOr<typename SessionKeeper<Session>::Ptr> SessionKeeper<Session>::Current() {
  calls_.fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(&mu_);
  if (stopping_) return BeingDestroyed();
  if (usable()) return session_;
  failed_fast_.fetch_add(1, std::memory_order_relaxed);
  return AwayError(options_.where, away_reason_);
}

template <typename Session>
absl::StatusOr<typename SessionKeeper<Session>::Ready> SessionKeeper<Session>::Prepare(
    Transport::Ns binding) {
  KVKEEP_ASSIGN_OR_RETURN(Ptr session, Current());
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest digest,
                          static_cast<DeclaredNamespace&>(*binding).DigestIn(session->epoch()));
  return Ready{std::move(session), digest};
}

template <typename Session>
absl::StatusOr<DeclaredNamespaces::Ptr> SessionKeeper<Session>::OpenNamespace(
    const NamespaceSpec& spec, Deadline deadline, Undeclared* undeclared) {
  DeclaredNamespaces::Ptr ns;
  Ptr session;
  {
    MutexLock lock(&mu_);
    KVKEEP_ASSIGN_OR_RETURN(ns, namespaces_.Add(spec));
    session = session_;
  }
  if (session == nullptr) return ns;
  if (absl::Status failed = Declare(session, ns.get(), deadline); !failed.ok()) {
    *undeclared = {.session = std::move(session), .why = std::move(failed)};
    return ns;
  }
  absl::Status refusal = ns->refusal();
  if (refusal.ok()) return ns;
  MutexLock lock(&mu_);
  namespaces_.Remove(ns);
  return refusal;
}

template <typename Session>
absl::Status SessionKeeper<Session>::Declare(const Ptr& session, DeclaredNamespace* ns,
                                             Deadline deadline) {
  return ns->TakeAnswer(session->epoch(), opener_->AskToOpen(session, ns->spec(), deadline));
}

template <typename Session>
void SessionKeeper<Session>::Run() {
  Backoff backoff(options_.backoff_min, options_.backoff_max);
  for (uint64_t epoch = 1;; ++epoch) {
    const Time began = Now();
    absl::Status ended = opener_->RunSession(epoch);
    const Time retry_at = Now() + backoff.After(Now() - began);
    {
      MutexLock lock(&mu_);
      opening_ = nullptr;
      away_reason_ = std::move(ended);
      attempted_ = true;
      changed_.NotifyAll();
    }
    while (Now() < retry_at) {
      if (SleepUntil(std::min(retry_at, opener_->Rest(Now())))) return;
    }
    if (stopping_) return;
  }
}

template <typename Session>
bool SessionKeeper<Session>::SleepUntil(Time time) {
  MutexLock lock(&mu_);
  while (!stopping_ && Now() < time) changed_.WaitFor(&mu_, time - Now());
  return stopping_;
}

}  // namespace kvkeep::client
