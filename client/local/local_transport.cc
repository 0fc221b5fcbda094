#include "client/local/local_transport.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "client/local/test_point.h"
#include "tiers/base/check.h"
#include "tiers/base/image.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using std::chrono::steady_clock;

constexpr int kWorkers = 2;
constexpr uint64_t kMaxPartsPerCall = 64;
// How long the arena stays mapped after a session. If the daemon comes back with the same arena by
// then, it is still mapped; afterwards a daemon that needs another arena gets this memory back, as
// far as no lease holds it.
constexpr std::chrono::seconds kKeepArena{5};

absl::Status Forked() {
  return absl::FailedPreconditionError(
      "forked: this kvkeep client belongs to the parent process; connect anew in the child");
}

}  // namespace

LocalTransport::LocalTransport(Options options)
    : options_(std::move(options)),
      keeper_({.where = options_.socket,
               .default_deadline = options_.default_deadline,
               .backoff_min = options_.backoff_min,
               .backoff_max = options_.backoff_max},
              this) {
  keeper_.Start();
}

LocalTransport::~LocalTransport() {
  KVKEEP_CHECK(!forked());
  for (const LocalSessionPtr& session : keeper_.Stop()) session->Break(BeingDestroyed());
  std::unique_ptr<ThreadPool> workers;
  {
    MutexLock lock(&mu_);
    workers = std::move(workers_);
  }
  workers.reset();  // queued work runs, and ends at once
  keeper_.Join();
}

// ---------------------------------------------------------------- the keeper's thread

LocalTransport::Keeper::Time LocalTransport::Rest(Keeper::Time now) {
  if (arena_ == nullptr) return Keeper::Time::max();
  if (now < keep_arena_until_) return keep_arena_until_;
  arena_ = nullptr;
  return Keeper::Time::max();
}

absl::Status LocalTransport::RunSession(uint64_t epoch) {
  const auto deadline = steady_clock::now() + options_.default_deadline;
  KVKEEP_ASSIGN_OR_RETURN(Greeting greeting, Greet({.socket = options_.socket,
                                                    .client_name = options_.client_name,
                                                    .known_arena = last_arena_.lock(),
                                                    .deadline = deadline,
                                                    .stop = &keeper_.stopping()}));
  const auto session =
      std::make_shared<LocalSession>(std::move(greeting), epoch, options_.busy_poll);
  arena_ = session->mappings()->shared_arena();
  last_arena_ = arena_;
  KVKEEP_RETURN_IF_ERROR(keeper_.Begin(session));
  absl::StatusOr<bool> published = false;
  while (published.ok() && !*published) {
    put_memory_->RegisterAgain(session, deadline);
    published = keeper_.Publish(session, LimitsOf(*session),
                                [&] { return !put_memory_->HasUnregistered(epoch); });
  }
  absl::Status ended = published.status();
  if (ended.ok()) ended = session->Serve([&] { return put_memory_->Tend(session); });
  if (ended.ok()) ended = absl::UnavailableError("the session ended");
  keeper_.Withdraw();
  session->Break(ended);
  put_memory_->Close(epoch);
  session->AwaitCallbacks();
  keep_arena_until_ = steady_clock::now() + kKeepArena;
  return ended;
}

absl::StatusOr<NamespaceDigest> LocalTransport::AskToOpen(const LocalSessionPtr& session,
                                                          const NamespaceSpec& spec,
                                                          Deadline deadline_after) {
  const LocalSession::Time deadline = DeadlineOf(deadline_after);
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
  TestPoint("namespace-open");
  return digest;
}

// ---------------------------------------------------------------- sessions and namespaces for
// calls

absl::Status LocalTransport::WaitFirstAttempt(Deadline timeout) {
  return keeper_.WaitFirstAttempt(timeout);
}

bool LocalTransport::WaitConnected(Deadline timeout) {
  return !forked() && keeper_.WaitConnected(timeout);
}

absl::Status LocalTransport::why_away() const { return forked() ? Forked() : keeper_.why_away(); }

ServerLimits LocalTransport::LimitsOf(const LocalSession& session) {
  const local::Welcome& welcome = session.welcome();
  return {.max_keys_per_call = welcome.max_keys_per_call,
          .max_parts_per_call = kMaxPartsPerCall,
          .max_payload_bytes = session.max_payload_bytes(),
          .max_metadata_bytes = kMaxTailBytes,
          .max_frame_bytes = 0,
          .max_leases_per_session = welcome.max_leases_per_session,
          .max_leased_bytes = welcome.max_leased_bytes,
          .max_sessions = welcome.max_sessions};
}

ServerLimits LocalTransport::limits() const {
  return forked() ? ServerLimits{} : keeper_.limits();
}

ClientStats LocalTransport::stats() const {
  ClientStats stats{.corrupt_chunks = counters_->corrupt_chunks,
                    .bytes_received = counters_->bytes_received,
                    .bytes_sent = counters_->bytes_sent,
                    .leases_reclaimed = counters_->leases_reclaimed};
  keeper_.AddStats(&stats);
  return stats;
}

absl::StatusOr<LocalSessionPtr> LocalTransport::CurrentSession() {
  if (forked()) return Forked();
  return keeper_.Current();
}

absl::StatusOr<LocalTransport::Ready> LocalTransport::Prepare(Ns binding) {
  if (forked()) return Forked();
  return keeper_.Prepare(binding);
}

LocalSession::Time LocalTransport::DeadlineOf(Deadline deadline) const {
  return steady_clock::now() + (deadline.count() > 0 ? deadline : options_.default_deadline);
}

absl::StatusOr<std::shared_ptr<NamespaceBinding>> LocalTransport::OpenNamespace(
    const NamespaceSpec& spec, Deadline deadline) {
  if (forked()) return Forked();
  Keeper::Undeclared undeclared;
  absl::StatusOr<DeclaredNamespaces::Ptr> ns = keeper_.OpenNamespace(spec, deadline, &undeclared);
  if (undeclared.session != nullptr) {
    // It is unknown whether the daemon has it; a new session makes that certain.
    undeclared.session->Break(absl::UnavailableError(
        absl::StrCat("a namespace could not be declared: ", undeclared.why.ToString())));
  }
  return ns;
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
