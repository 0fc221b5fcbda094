#include "client/local/local_transport.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "client/local/test_point.h"
#include "client/transport/backoff.h"
#include "tiers/base/check.h"
#include "tiers/base/image.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using std::chrono::steady_clock;

constexpr int kWorkers = 2;
constexpr uint64_t kMaxPartsPerCall = 64;
// A daemon that is back by then and has kept its arena finds it mapped. One that needs another
// arena gets the memory of this one, as far as no lease holds it.
constexpr std::chrono::seconds kKeepArena{5};

absl::Status Forked() {
  return absl::FailedPreconditionError(
      "forked: this kvkeep client belongs to the parent process; connect anew in the child");
}

absl::Status BeingDestroyed() {
  return absl::CancelledError("the kvkeep client is being destroyed");
}

// What the daemon answers to that namespace in this session.
absl::StatusOr<NamespaceDigest> AskToOpen(const LocalSessionPtr& session, const NamespaceSpec& spec,
                                          LocalSession::Time deadline) {
  const std::string* const texts[] = {&spec.model,          &spec.dtype,     &spec.layout,
                                      &spec.hash_algorithm, &spec.hash_seed, &spec.tenant};
  for (const std::string* text : texts) {
    if (text->size() > UINT16_MAX) return absl::InvalidArgumentError("namespace: text too long");
  }
  if (!spec.tenant.empty() && session->welcome().version < 2) {
    return absl::PermissionDeniedError(
        "namespace: this daemon is too old for namespaces of other tenants by the local path");
  }
  const uint64_t id = session->NextId();
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kOpenNamespace), id);
  writer.Append(local::OpenNamespace{
      .bytes_per_part = spec.bytes_per_part,
      .tokens_per_chunk = spec.tokens_per_chunk,
      .parts = spec.parts,
      .model_bytes = static_cast<uint16_t>(spec.model.size()),
      .dtype_bytes = static_cast<uint16_t>(spec.dtype.size()),
      .layout_bytes = static_cast<uint16_t>(spec.layout.size()),
      .hash_algorithm_bytes = static_cast<uint16_t>(spec.hash_algorithm.size()),
      .hash_seed_bytes = static_cast<uint16_t>(spec.hash_seed.size()),
      .tenant_bytes = static_cast<uint16_t>(spec.tenant.size())});
  for (const std::string* text : texts) writer.AppendText(*text);
  KVKEEP_ASSIGN_OR_RETURN(const local::NamespaceReply reply,
                          Ask<local::NamespaceReply>(session, Kind::kOpenNamespace, id, writer,
                                                     deadline, ReadStruct<local::NamespaceReply>));
  NamespaceDigest digest;
  digest.bytes = reply.digest;
  return digest;
}

}  // namespace

LocalTransport::LocalTransport(Options options) : options_(std::move(options)) {
  away_reason_ = absl::UnavailableError("not connected yet");
  thread_ = std::thread([this] { Run(); });
}

LocalTransport::~LocalTransport() {
  KVKEEP_CHECK(!forked());
  LocalSessionPtr session, opening;
  std::unique_ptr<ThreadPool> workers;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    session = session_;
    opening = opening_;
    workers = std::move(workers_);
    changed_.NotifyAll();
  }
  if (session != nullptr) session->Break(BeingDestroyed());
  if (opening != nullptr) opening->Break(BeingDestroyed());
  workers.reset();  // what is queued runs, and ends at once
  thread_.join();
}

// ---------------------------------------------------------------- the background thread

void LocalTransport::Run() {
  Backoff backoff(options_.backoff_min, options_.backoff_max);
  auto let_go_at = steady_clock::now();
  while (true) {
    const auto began = steady_clock::now();
    const ArenaMap* const before = arena_.get();
    absl::Status ended = RunSession();
    const Deadline wait = backoff.After(steady_clock::now() - began);
    const auto now = steady_clock::now();
    if (arena_.get() != before) let_go_at = now + kKeepArena;  // there was a session
    {
      MutexLock lock(&mu_);
      away_reason_ = std::move(ended);
      attempted_ = true;
      changed_.NotifyAll();
    }
    const auto retry_at = now + wait;
    if (SleepUntil(std::min(retry_at, let_go_at))) return;
    if (steady_clock::now() >= let_go_at) arena_ = nullptr;
    if (SleepUntil(retry_at)) return;
  }
}

bool LocalTransport::SleepUntil(steady_clock::time_point time) {
  MutexLock lock(&mu_);
  while (!stopping_ && steady_clock::now() < time) {
    changed_.WaitFor(&mu_, time - steady_clock::now());
  }
  return stopping_;
}

absl::Status LocalTransport::RunSession() {
  const auto deadline = steady_clock::now() + options_.default_deadline;
  KVKEEP_ASSIGN_OR_RETURN(Greeting greeting, Greet({.socket = options_.socket,
                                                    .client_name = options_.client_name,
                                                    .known_arena = last_arena_.lock(),
                                                    .deadline = deadline,
                                                    .stop = &stopping_}));
  uint64_t epoch;
  {
    MutexLock lock(&mu_);
    epoch = ++epochs_;
  }
  const auto session =
      std::make_shared<LocalSession>(std::move(greeting), epoch, options_.busy_poll);
  arena_ = session->mappings()->shared_arena();
  last_arena_ = arena_;
  {
    MutexLock lock(&mu_);
    if (stopping_) return BeingDestroyed();
    opening_ = session;
  }
  absl::Status ended;
  while (ended.ok()) {
    put_memory_->RegisterAgain(session, deadline);
    ended = DeclareAll(session);
    if (!ended.ok()) break;
    MutexLock lock(&mu_);
    if (stopping_) ended = BeingDestroyed();
    if (!ended.ok() || !namespaces_.Undeclared(epoch).empty() ||
        put_memory_->HasUnregistered(epoch)) {
      continue;  // one more came in between
    }
    session_ = session;
    opening_ = nullptr;
    limits_ = LimitsOf(session->welcome());
    attempted_ = true;
    counters_->sessions_opened.fetch_add(1);
    changed_.NotifyAll();
    break;
  }
  if (ended.ok()) ended = session->Serve([&] { return put_memory_->Tend(session); });
  {
    MutexLock lock(&mu_);
    session_ = nullptr;
    opening_ = nullptr;
    changed_.NotifyAll();
  }
  session->Break(ended.ok() ? absl::UnavailableError("the session ended") : ended);
  put_memory_->Close(epoch);
  session->AwaitCallbacks();
  return ended;
}

absl::Status LocalTransport::DeclareAll(const LocalSessionPtr& session) {
  std::vector<DeclaredNamespaces::Ptr> missing;
  {
    MutexLock lock(&mu_);
    missing = namespaces_.Undeclared(session->epoch());
  }
  const auto deadline = steady_clock::now() + options_.default_deadline;
  for (const auto& ns : missing) {
    KVKEEP_RETURN_IF_ERROR(Declare(session, ns.get(), deadline));
  }
  return absl::OkStatus();
}

absl::Status LocalTransport::Declare(const LocalSessionPtr& session, DeclaredNamespace* ns,
                                     LocalSession::Time deadline) {
  KVKEEP_RETURN_IF_ERROR(
      ns->TakeAnswer(session->epoch(), AskToOpen(session, ns->spec(), deadline)));
  TestPoint("namespace-open");
  return absl::OkStatus();
}

// ---------------------------------------------------------------- sessions and namespaces for
// calls

absl::Status LocalTransport::WaitFirstAttempt(Deadline timeout) {
  const auto give_up = steady_clock::now() + timeout;
  MutexLock lock(&mu_);
  while (!attempted_ && steady_clock::now() < give_up) {
    changed_.WaitFor(&mu_, give_up - steady_clock::now());
  }
  return session_ != nullptr ? absl::OkStatus() : away_reason_;
}

bool LocalTransport::WaitConnected(Deadline timeout) {
  if (forked()) return false;
  const auto give_up = steady_clock::now() + timeout;
  MutexLock lock(&mu_);
  // A session that is over stands here until its thread has ended it, and another one follows.
  while ((session_ == nullptr || session_->over()) && !stopping_ &&
         steady_clock::now() < give_up) {
    changed_.WaitFor(&mu_, give_up - steady_clock::now());
  }
  return session_ != nullptr && !session_->over();
}

absl::Status LocalTransport::why_away() const {
  if (forked()) return Forked();
  MutexLock lock(&mu_);
  return session_ != nullptr ? absl::OkStatus() : away_reason_;
}

ServerLimits LocalTransport::LimitsOf(const local::Welcome& welcome) {
  return {.max_keys_per_call = welcome.max_keys_per_call,
          .max_parts_per_call = kMaxPartsPerCall,
          .max_payload_bytes = kMaxPayloadBytes,
          .max_metadata_bytes = kMaxTailBytes,
          .max_frame_bytes = 0,
          .max_leases_per_session = welcome.max_leases_per_session,
          .max_leased_bytes = welcome.max_leased_bytes,
          .max_sessions = welcome.max_sessions};
}

ServerLimits LocalTransport::limits() const {
  if (forked()) return {};
  MutexLock lock(&mu_);
  return limits_;
}

ClientStats LocalTransport::stats() const {
  return {.sessions_opened = counters_->sessions_opened,
          .calls = counters_->calls,
          .failed_fast = counters_->failed_fast,
          .corrupt_chunks = counters_->corrupt_chunks,
          .bytes_received = counters_->bytes_received,
          .bytes_sent = counters_->bytes_sent,
          .late_slices = 0,
          .sessions_torn_down = 0,
          .leases_reclaimed = counters_->leases_reclaimed};
}

absl::StatusOr<LocalSessionPtr> LocalTransport::CurrentSession() {
  if (forked()) return Forked();
  counters_->calls.fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(&mu_);
  if (stopping_) return BeingDestroyed();
  if (session_ == nullptr || session_->over()) {
    counters_->failed_fast.fetch_add(1, std::memory_order_relaxed);
    return AwayError(options_.socket, away_reason_);
  }
  return session_;
}

absl::StatusOr<LocalTransport::Ready> LocalTransport::Prepare(Ns binding) {
  KVKEEP_ASSIGN_OR_RETURN(LocalSessionPtr session, CurrentSession());
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest digest,
                          static_cast<DeclaredNamespace&>(*binding).DigestIn(session->epoch()));
  return Ready{std::move(session), digest};
}

LocalSession::Time LocalTransport::DeadlineOf(Deadline deadline) const {
  return steady_clock::now() + (deadline.count() > 0 ? deadline : options_.default_deadline);
}

absl::StatusOr<std::shared_ptr<NamespaceBinding>> LocalTransport::OpenNamespace(
    const NamespaceSpec& spec, Deadline deadline) {
  if (forked()) return Forked();
  DeclaredNamespaces::Ptr ns;
  LocalSessionPtr session;
  {
    MutexLock lock(&mu_);
    KVKEEP_ASSIGN_OR_RETURN(ns, namespaces_.Add(spec));
    session = session_;
  }
  if (session == nullptr) return ns;  // declared once there is a session
  if (absl::Status failed = Declare(session, ns.get(), DeadlineOf(deadline)); !failed.ok()) {
    // The daemon may or may not know it: a new session makes that certain.
    session->Break(absl::UnavailableError(
        absl::StrCat("a namespace could not be declared: ", failed.ToString())));
    return ns;
  }
  absl::Status refusal = ns->refusal();
  if (refusal.ok()) return ns;
  MutexLock lock(&mu_);
  namespaces_.Remove(ns);
  return refusal;
}

// ---------------------------------------------------------------- threads

void LocalTransport::RunBlocking(absl::FunctionRef<void()> start, Waiting* waiting) {
  LocalSession::Blocking blocking;
  {
    LocalSession::BlockingScope scope(&blocking);
    start();
  }
  if (blocking.session != nullptr) {
    blocking.session->ReadUntil(waiting, blocking.deadline);
  } else {
    waiting->Wait();
  }
}

void LocalTransport::RunOrPost(absl::AnyInvocable<void() &&> work) {
  if (LocalSession::TakeBlocking()) return std::move(work)();
  MutexLock lock(&mu_);
  if (workers_ == nullptr) workers_ = std::make_unique<ThreadPool>("kvkeep-local", kWorkers);
  workers_->Post(std::move(work));
}

}  // namespace kvkeep::client
