// LocalTransport: the way to the daemon through shared memory and its local socket. Internal; no
// gRPC in it. Lives from the first attempt to connect until it is destroyed, over all sessions.
//
// One background thread (session_keeper.h) connects and serves the session (session.h). Calls that
// only exchange messages run on the thread that reads their reply. Gets and puts copy: with a
// callback, on two worker threads that the first one starts; blocking ones, on the caller's thread.
//
// After fork() every call in the child returns FAILED_PRECONDITION; nothing of the parent's is
// touched, nor its memory in the child. Thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "client/internal/fork_guard.h"
#include "client/local/gpu_regions.h"
#include "client/local/put_memory.h"
#include "client/local/requests.h"
#include "client/transport/session_keeper.h"
#include "client/transport/split_calls.h"
#include "client/transport/transport.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

struct LocalCounters {
  std::atomic<uint64_t> corrupt_chunks{0}, bytes_received{0}, bytes_sent{0}, leases_reclaimed{0};
};

class LocalTransport final : public Transport, private SessionKeeper<LocalSession>::Opener {
 public:
  struct Options {
    std::string socket;
    std::string client_name;
    Deadline default_deadline{5'000};
    Deadline backoff_min{50};
    Deadline backoff_max{2'000};
    std::chrono::microseconds busy_poll{100};
    Deadline staging_idle{2'000};  // after it unused staging memory is given back
    DaemonProcess::Watch watch_daemon = DaemonProcess::OpenPidfd;
  };
  explicit LocalTransport(Options options);
  ~LocalTransport() override;  // REQUIRES: !forked(); a child leaves it alone

  bool forked() const { return mark_.InChild(); }

  absl::Status WaitFirstAttempt(Deadline timeout) override;
  bool WaitConnected(Deadline timeout) override;
  absl::Status why_away() const override;
  ServerLimits limits() const override;
  ClientStats stats() const override;
  // Returns the number of own memory areas that puts used because the daemon had no staging memory.
  uint64_t own_staging_areas() const { return put_memory_->own_areas(); }
  void RunBlocking(absl::FunctionRef<void()> start, Waiting* waiting) override;

  absl::StatusOr<std::shared_ptr<NamespaceBinding>> OpenNamespace(const NamespaceSpec& spec,
                                                                  Deadline deadline) override;
  void Lookup(Ns ns, const NamespaceSpec& spec, Keys keys, const LookupOptions& options,
              Callback<LookupResult> done) override;
  void Get(Ns ns, const NamespaceSpec& spec, Keys keys, GetOptions options,
           Callback<GetResult> done) override;
  void Put(Ns ns, const NamespaceSpec& spec, std::vector<PutChunk> chunks,
           const PutOptions& options, Callback<PutResult> done) override;
  void Touch(Ns ns, Keys keys, Parts parts, Deadline deadline, Callback<uint64_t> done) override;
  void Prefetch(Ns ns, Keys keys, Parts parts, Deadline deadline,
                Callback<PrefetchResult> done) override;
  void Delete(Ns ns, Keys keys, Parts parts, Deadline deadline, Callback<uint64_t> done) override;
  void Release(Lease lease, DoneCallback done) override;
  void GetServerInfo(Deadline deadline, Callback<ServerInfo> done) override;
  void Acquire(Ns ns, const NamespaceSpec& spec, Keys keys, const AcquireOptions& options,
               Callback<Acquired> done) override;
  absl::StatusOr<std::shared_ptr<const ArenaMap>> Arena() override;
  absl::StatusOr<GpuRegion> RegisterGpuMemory(GpuMemory memory, Deadline deadline) override;
  void PutFromGpu(Ns ns, const NamespaceSpec& spec, std::vector<GpuPutChunk> chunks,
                  const GpuPutOptions& options, Callback<PutResult> done) override;
  void GetToGpu(Ns ns, const NamespaceSpec& spec, std::vector<GpuGetChunk> chunks,
                const GpuGetOptions& options, Callback<GetResult> done) override;
  GpuStats gpu_stats() const override;
  absl::StatusOr<StagingBuffer> AllocateStaging(uint64_t bytes) override;
  absl::StatusOr<RegisteredMemory> RegisterMemory(int fd, std::span<const std::byte> mapping,
                                                  const RegisterOptions& options) override;

 private:
  using Keeper = SessionKeeper<LocalSession>;
  using Ready = Keeper::Ready;
  // Returns the open session, or why there is none.
  absl::StatusOr<LocalSessionPtr> CurrentSession();
  absl::StatusOr<Ready> Prepare(Ns ns);
  LocalSession::Time DeadlineOf(Deadline deadline) const;
  static ServerLimits LimitsOf(const LocalSession& session);

  // Makes a Touch, Prefetch or Delete.
  template <typename T, typename Wire>
  void KeysCall(local::Kind kind, Ns ns, Keys keys, Parts parts, Deadline deadline,
                Callback<T> done);
  // Makes a leased or plain lookup; `done` gets the session too.
  using FoundCallback = absl::AnyInvocable<void(const LocalSessionPtr&, absl::StatusOr<Found>) &&>;
  void Find(local::Kind kind, const Ready& ready, const KeysQuery& query,
            LocalSession::Time deadline, FoundCallback done);
  template <typename Call>
  void StartGpu(const std::shared_ptr<Call>& call, const NamespaceSpec& spec);
  // Runs `work` here if this thread waits for it anyway, else on a worker.
  void RunOrPost(absl::AnyInvocable<void() &&> work);

  // ---- the background thread
  absl::Status RunSession(uint64_t epoch) override;
  Keeper::Time Rest(Keeper::Time now) override;
  absl::StatusOr<NamespaceDigest> AskToOpen(const LocalSessionPtr& session,
                                            const NamespaceSpec& spec, Deadline deadline) override;

  const Options options_;
  const ForkMark mark_;
  const std::shared_ptr<LocalCounters> counters_ = std::make_shared<LocalCounters>();
  const std::shared_ptr<PutMemory> put_memory_ = std::make_shared<PutMemory>(options_.staging_idle);
  const std::shared_ptr<GpuRegions> gpu_regions_ = std::make_shared<GpuRegions>(
      options_.watch_daemon, Backoff(options_.backoff_min, options_.backoff_max));
  // The last session's arena, for the next session: held for a while, and known as long as anybody
  // holds it. Used by the background thread only.
  std::shared_ptr<const ArenaMap> arena_;
  std::weak_ptr<const ArenaMap> last_arena_;
  Keeper::Time keep_arena_until_;

  Mutex mu_;
  std::unique_ptr<ThreadPool> workers_ ABSL_GUARDED_BY(mu_);  // with the first get or put
  Keeper keeper_;  // last: its thread runs on all of the above
};

}  // namespace kvkeep::client
