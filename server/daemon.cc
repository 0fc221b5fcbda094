#include "server/daemon.h"

#include <absl/strings/str_join.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <initializer_list>
#include <thread>
#include <utility>

#include "server/access/metrics_tokens.h"
#include "server/access/read_record.h"
#include "server/access/tcp_access.h"
#include "server/bulk_listener.h"
#include "server/events/publisher.h"
#include "server/gpu/gpu_path.h"
#include "server/grpc/admin_service.h"
#include "server/grpc/kv_service.h"
#include "server/grpc/listeners.h"
#include "server/life/drainer.h"
#include "server/life/process_limits.h"
#include "server/local_listener.h"
#include "server/observe/metrics.h"
#include "server/observe/process_stats.h"
#include "server/peers.h"
#include "server/sockets/sockets.h"
#include "server/storage/storage_stack.h"
#include "server/supervision/http_pages.h"
#include "server/supervision/service_manager.h"
#include "server/supervision/start_reporter.h"
#include "server/supervision/ticker.h"
#include "server/version.h"
#include "tiers/base/memory_errors.h"
#include "tiers/base/mutex.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/status_macros.h"
#include "tiers/host/kernel_facts.h"

namespace kvkeep {
namespace {
using std::chrono::milliseconds;

constexpr milliseconds kTick{100}, kRest{1'000};  // of the periodic work; at rest
constexpr milliseconds kCloseGrace{2'000};        // for calls under way, once everything is drained
constexpr std::chrono::seconds kQuietTimeout{20};
constexpr std::chrono::seconds kStuck{30};  // a thread that runs nothing for this long is stuck
// Time between probes of the threads, each of which wakes its thread.
constexpr std::chrono::seconds kProbePeriod{4};

sigset_t SetOf(std::initializer_list<int> numbers) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : numbers) sigaddset(&signals, number);
  return signals;
}

sigset_t StopSignals() { return SetOf({SIGTERM, SIGINT}); }
sigset_t AwaitedSignals() { return SetOf({SIGTERM, SIGINT, SIGHUP}); }

Listeners::Options ToListenerOptions(const DaemonOptions& options) {
  Listeners::Options listeners{.admin_socket_path = options.admin_socket_path,
                               .tcp_address = options.tcp_address,
                               .max_connections = options.max_connections,
                               .max_address_connections = options.max_address_connections,
                               .receive_memory_bytes = options.receive_memory_bytes,
                               .http2 = options.http2,
                               .peer_timeout = options.peer_timeout,
                               .tcp_connection_age = options.tcp_connection_age};
  for (const TenantListener& tenant : options.tenants) {
    listeners.sockets.push_back({tenant.grpc, tenant.grants, tenant.connections});
  }
  return listeners;
}

// Logs the memory that a stop does not give back, for operators who stop a daemon to free memory.
void LogStopped(StorageStack& storage, const Log& log) {
  const Arena::Stats arena = storage.arena().stats();
  if (!arena.survives_restart) return log.Info("stopped");
  log.Info("stopped; G2 stays in memory for the next start",
           {{"held_bytes", absl::StrCat(arena.capacity_bytes - arena.to_come_bytes)},
            {"to_free_it", "kvkeep arena drop"}});
}

void LogSlow(const SlowRequest& slow, const Log& log) {
  const auto took = std::chrono::duration_cast<milliseconds>(slow.took);
  log.Warn("slow operation", {{"operation", kOperationNames[static_cast<size_t>(slow.operation)]},
                              {"listener", kListenerNames[static_cast<size_t>(slow.listener)]},
                              {"took_ms", absl::StrCat(took.count())},
                              {"peer", slow.requester.peer},
                              {"keys", absl::StrCat(slow.requester.keys)}});
}

std::string Kernel() {
  utsname kernel{};
  return uname(&kernel) == 0 ? absl::StrCat(kernel.sysname, " ", kernel.release) : "unknown";
}

// Makes /healthz. A supervisor that checks this page ends a stuck daemon, as the watchdog does.
HttpPages::Page HealthPage(const std::vector<LoopWatch::Lag>& loops) {
  HttpPages::Page page{.body = "ok\n"};
  for (const LoopWatch::Lag& loop : loops) {
    if (loop.lag < kStuck || loop.waits == LoopWatch::Waits::kForDisk) continue;
    if (std::exchange(page.status, 503) == 200) page.body.clear();
    absl::StrAppend(&page.body, "thread ", loop.loop, " is stuck\n");
  }
  return page;
}

// Makes /readyz. It names no path, as anybody may see this page.
HttpPages::Page ReadyPage(const ServerState& state) {
  const v1::ServingState serving = state.serving.load();
  if (serving == v1::SERVING_STATE_DRAINING) return {.status = 503, .body = "draining\n"};
  if (serving != v1::SERVING_STATE_SERVING) return {.status = 503, .body = "recovering\n"};
  const size_t lost = state.sockets.lost();
  if (lost == 0) return {.body = "ok\n"};
  return {.status = 503,
          .body = absl::StrCat(lost, " Unix sockets cannot be reached: the log says which\n")};
}

// Returns false unless KVKEEPD_DUMPABLE=1 is set, for debugging. The memory holds KV bytes, session
// tokens and the MAC key: by default there are no core files, and only root may look into it. The
// arena is never in a core file.
bool MayBeDumped() {
  const char* const said = std::getenv("KVKEEPD_DUMPABLE");
  return said != nullptr && absl::string_view(said) == "1";
}

TcpAccess::Options ToTcpAccessOptions(const DaemonOptions& options) {
  TcpAccess::Options access{.address = options.tcp_address,
                            .tls = options.tls,
                            .admin_certificate_names = options.admin_certificate_names,
                            .fleet_ca_file = options.peers.ca_file};
  for (const TenantListener& tenant : options.tenants) {
    access.tenants.push_back(tenant.credentials);
  }
  return access;
}

std::vector<std::string> NamesOf(const std::vector<TenantListener>& tenants) {
  std::vector<std::string> names;
  for (const TenantListener& tenant : tenants) names.push_back(tenant.name);
  return names;
}

}  // namespace

// Members are built from the first to the last and destroyed the other way round.
struct Daemon::Components {
  Components(const DaemonOptions& daemon_options, std::optional<StartedConfig> started)
      : options(daemon_options),
        log(options.log_format, options.log_level),
        state(KVKEEP_VERSION, RealClock(),
              {.pinned = options.pinned, .stall_timeout = options.stall_timeout}),
        config(std::move(started), &state, &log),
        drain_timeout(options.drain_timeout),
        drain_to_peers(options.drain_to_peers),
        audit(&log, RealClock()),
        reads(&log, RealClock(), NamesOf(options.tenants)),
        socket_callers(&state),
        manager(RealClock()) {
    state.times.SetSlow(options.slow_operation);
    state.times.OnSlow([this](const SlowRequest& slow) { LogSlow(slow, log); });
  }
  ~Components() { StopServing(); }

  absl::Status Open();
  HttpPages::Page MetricsPage(bool everything);
  absl::Status OpenPages();
  absl::Status OpenListeners();
  absl::Status OpenPublishers();
  bool Tick();  // as Store::Tick
  void LogServing(const std::string& config_source, const StoreSnapshot& snapshot) const;
  void LookAtSockets();
  // Tells the manager that the daemon is alive, unless a thread is stuck: then the manager ends the
  // process.
  void SignOfLife();
  std::unique_ptr<AdminService> MakeAdmin(Callers* callers);
  void OnDrainBegins();
  // Takes over all options that may change while the daemon runs, or none.
  absl::Status TakeOver(const DaemonOptions& now);
  void Reload();
  // No call reaches the store after this. Idempotent.
  void StopServing();

  const DaemonOptions options;  // from the start; TakeOver changes the components
  Log log;
  ServerState state;
  ConfigKeeper config;
  std::atomic<std::chrono::nanoseconds> drain_timeout;
  std::atomic<bool> drain_to_peers;  // at a stop
  AuditLog audit;
  ReadRecord reads;  // of the ticker
  SocketCallers socket_callers;
  ServiceManager manager;
  MonotonicTime next_probe{0};      // of the ticker
  bool told_of_stuck_loop = false;  // likewise
  UniqueFd state_lock;
  std::unique_ptr<TcpAccess> tcp;  // null: no TCP
  std::unique_ptr<Ticker> ticker;  // destroyed after the storage, which wakes it
  std::unique_ptr<StorageStack> storage;
  std::unique_ptr<Fleet> fleet;  // null: the node has no peers
  std::unique_ptr<GpuPath> gpu;
  std::unique_ptr<Drainer> drainer;
  std::unique_ptr<KvService> kv, tcp_kv;           // tcp_kv: null without TCP
  std::unique_ptr<AdminService> admin, tcp_admin;  // tcp_admin: null unless asked for
  std::unique_ptr<LocalEndpoint> local;            // null: no local path
  std::unique_ptr<Listeners> listeners;
  std::unique_ptr<BulkDoor> bulk;                 // null: no bulk door
  std::unique_ptr<MetricsTokens> metrics_tokens;  // null: none is known
  std::unique_ptr<HttpPages> pages;
  std::vector<std::unique_ptr<Publisher>> publishers;
};

absl::Status Daemon::Components::Open() {
  KVKEEP_RETURN_IF_ERROR(PrepareStateDirectory(options.storage.state_dir));
  KVKEEP_ASSIGN_OR_RETURN(state_lock, LockDirectory(options.storage.state_dir));
  // Done before the recovery, which may take long, so that a daemon that cannot listen fails at
  // once.
  for (const TenantListener& tenant : options.tenants) {
    for (const UnixSocketOptions& socket : {tenant.grpc, tenant.local, tenant.bulk}) {
      if (socket.path.empty()) continue;
      KVKEEP_RETURN_IF_ERROR(PrepareSocketPath(socket.path, DirectoryModeFor(socket.mode)));
    }
  }
  KVKEEP_RETURN_IF_ERROR(PrepareSocketPath(options.admin_socket_path));
  if (!options.metrics_socket.path.empty()) {
    KVKEEP_RETURN_IF_ERROR(PrepareSocketPath(options.metrics_socket.path));
  }
  if (!options.tcp_address.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(tcp, TcpAccess::Open(ToTcpAccessOptions(options), &state, &log));
  }
  KVKEEP_ASSIGN_OR_RETURN(storage, StorageStack::Open(options.storage, &log, &state));
  KVKEEP_ASSIGN_OR_RETURN(gpu, OpenGpuPath(options.gpu, &storage->arena(), RealClock()));
  KVKEEP_ASSIGN_OR_RETURN(fleet, OpenFleet(options.peers, storage.get(), tcp.get(), &state, &log));
  drainer = std::make_unique<Drainer>(storage->store(), fleet.get(), RealClock(),
                                      [this] { OnDrainBegins(); });
  state.start.step = "opening sockets";
  KVKEEP_RETURN_IF_ERROR(OpenPages());
  KVKEEP_RETURN_IF_ERROR(OpenListeners());
  KVKEEP_RETURN_IF_ERROR(OpenPublishers());
  state.loops.Watch("accept", listeners->acceptor());
  state.loops.Watch("copy", storage->copy_probe());
  if (local != nullptr) state.loops.Watch("local", local->loop());
  for (Executor* const loop : storage->io().loops()) {
    state.loops.Watch("io", loop, LoopWatch::Waits::kForDisk);
  }
  // The watchdog is notified more often than it asks for, also at rest.
  const std::optional<std::chrono::nanoseconds> watchdog = manager.watchdog();
  const auto rest = std::min<std::chrono::nanoseconds>(kRest, watchdog.value_or(4 * kRest) / 4);
  ticker = std::make_unique<Ticker>(Ticker::Periods{.work = kTick, .rest = rest},
                                    [this] { return Tick(); });
  storage->OnWake([this] { ticker->Wake(); });
  ticker->Start();
  return absl::OkStatus();
}

bool Daemon::Components::Tick() {
  bool at_rest = storage->Tick();
  if (fleet != nullptr) at_rest = fleet->Tick() && at_rest;
  at_rest = gpu->Tick() && at_rest;
  reads.Note(storage->store()->TakeForeignReads());
  drainer->Poll();
  state.stalls.Tick();
  state.pins.Poke();
  log.TellUnsaid();
  listeners->PollGate();
  state.counters.dropped_log_lines = log.dropped();
  LookAtSockets();
  SignOfLife();
  return at_rest;
}

// Logs the result of a renewal within a tick. A daemon that drains takes no new clients.
void Daemon::Components::LookAtSockets() {
  const bool serves = state.serving.load() == v1::SERVING_STATE_SERVING;
  if (serves && RealClock()->Now() >= next_probe) state.sockets.Look();
  state.counters.lost_sockets = state.sockets.lost();
  state.counters.renewed_sockets = state.sockets.renewals();
  for (const SocketWatch::News& news : state.sockets.TakeNews()) {
    if (news.status.ok()) {
      log.Warn("a socket was made anew at its path; its file was gone", {{"path", news.path}});
    } else {
      log.Error("no new client can reach a socket: its path leads elsewhere",
                {{"path", news.path},
                 {"why", std::string(news.status.message())},
                 {"to_do", "clear the path or bring its directory back; it is tried again"}});
    }
  }
}

void Daemon::Components::SignOfLife() {
  if (const MonotonicTime now = RealClock()->Now(); now >= next_probe) {
    state.loops.Poll();
    next_probe = now + kProbePeriod;
  }
  if (!manager.watchdog().has_value()) return;
  for (const LoopWatch::Lag& loop : state.loops.lags()) {
    if (loop.waits == LoopWatch::Waits::kForDisk || loop.lag < *manager.watchdog() / 2) continue;
    if (!std::exchange(told_of_stuck_loop, true)) {
      log.Error("a thread is stuck: the service manager gets no more signs of life",
                {{"thread", loop.loop}});
    }
    return;
  }
  told_of_stuck_loop = false;
  manager.Alive();
}

// Logs the facts that are asked for first when a problem is reported.
void Daemon::Components::LogServing(const std::string& config_source,
                                    const StoreSnapshot& snapshot) const {
  log.Info("serving",
           {{"version", KVKEEP_VERSION},
            {"config", config_source},
            {"config_hash", state.config.hash()},
            {"socket", options.tenants[0].grpc.path},
            {"local_socket", options.tenants[0].local.path},
            {"tenants", absl::StrCat(options.tenants.size())},
            {"tcp", options.tcp_address},
            {"tls", options.tls.cert_file.empty() ? "off" : "1.3"},
            {"metrics", options.metrics_address},
            {"events", absl::StrJoin(options.events, ",",
                                     [](std::string* out, const PublisherOptions& one) {
                                       absl::StrAppend(out, one.sockets.endpoint);
                                     })},
            {"incarnation", absl::StrCat(storage->store()->incarnation().value())},
            {"g2_bytes", absl::StrCat(snapshot.g2.capacity_bytes)},
            {"g2_to_come_bytes", absl::StrCat(snapshot.g2.to_come_bytes)},
            {"g3_bytes", absl::StrCat(snapshot.g3.capacity_bytes)},
            {"devices", absl::StrJoin(snapshot.devices, ",",
                                      [](std::string* out, const DeviceSnapshot& device) {
                                        absl::StrAppend(out, device.path);
                                      })},
            {"recovery_ms", absl::StrCat(state.start.recovery_ns.load() / 1'000'000)},
            {"recovered_chunks", absl::StrCat(snapshot.counters.recovered_chunks)},
            {"recovered_g2_chunks", absl::StrCat(snapshot.counters.recovered_g2_chunks)},
            {"arena", storage->describe()},
            {"io", storage->io().describe()},
            {"gpu", gpu->describe()},
            {"kernel", Kernel()},
            {"shmem_huge_pages", ShmemEnabled()},
            {"memlock_bytes", LockedMemoryLimit()}});
}

HttpPages::Page Daemon::Components::MetricsPage(bool everything) {
  return {.body = MetricsText({.store = storage->snapshot(),
                               .arena = storage->arena().stats(),
                               .io = storage->io().stats(),
                               .gpu = gpu->stats(),
                               .g4 = storage->g4(),
                               .fleet = SnapshotOf(fleet.get()),
                               .process = ReadProcessStats(),
                               .state = &state},
                              everything ? MetricsView::kEverything : MetricsView::kTotals),
          .content_type = kMetricsContentType};
}

absl::Status Daemon::Components::OpenPages() {
  HttpPages::Options http{
      .address = options.metrics_address, .counters = &state.http, .sockets = &state.sockets};
  if (!options.metrics_socket.path.empty()) http.unix_socket = options.metrics_socket;
  if (http.address.empty() && !http.unix_socket.has_value()) return absl::OkStatus();
  if (!options.metrics_token_file.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(metrics_tokens, MetricsTokens::Load(options.metrics_token_file, &log));
    http.knows_token = [this](absl::string_view token) { return metrics_tokens->Knows(token); };
  }
  absl::StatusOr<std::unique_ptr<HttpPages>> served = ServeHttpPages(
      std::move(http),
      {{"/metrics",
        {.make = [this](bool everything) { return MetricsPage(everything); }, .guarded = true}},
       {"/healthz", {.make = [this](bool) { return HealthPage(state.loops.lags()); }}},
       {"/readyz", {.make = [this](bool) { return ReadyPage(state); }}}});
  if (!served.ok()) {
    return absl::UnavailableError(
        absl::StrCat("metrics.listen, metrics.unix: ", served.status().message()));
  }
  pages = *std::move(served);
  return absl::OkStatus();
}

absl::Status Daemon::Components::OpenPublishers() {
  for (const PublisherOptions& one : options.events) {
    absl::StatusOr<std::unique_ptr<Publisher>> started =
        Publisher::Start(one, storage->store(), RealClock(), &state.events);
    if (!started.ok()) {
      const uint32_t tenant = one.tenant.value();
      return absl::UnavailableError(
          absl::StrCat(tenant == 0 ? "events." : absl::StrCat("tenants[", tenant - 1, "]."),
                       started.status().message()));
    }
    publishers.push_back(*std::move(started));
  }
  return absl::OkStatus();
}

absl::Status Daemon::Components::OpenListeners() {
  kv = std::make_unique<KvService>(storage->store(), &state, &socket_callers);
  admin = MakeAdmin(&socket_callers);
  if (tcp != nullptr) {
    tcp_kv = std::make_unique<KvService>(storage->store(), &state, tcp->callers());
    if (!options.admin_certificate_names.empty()) tcp_admin = MakeAdmin(tcp->callers());
  }
  state.serving.store(v1::SERVING_STATE_SERVING);
  storage->BeginLog();
  KVKEEP_ASSIGN_OR_RETURN(local, OpenLocalListener(options, storage.get(), gpu.get(), &state));
  KVKEEP_ASSIGN_OR_RETURN(listeners, Listeners::Open(ToListenerOptions(options),
                                                     {.kv = kv.get(),
                                                      .admin = admin.get(),
                                                      .tcp_kv = tcp_kv.get(),
                                                      .tcp_admin = tcp_admin.get(),
                                                      .tcp_peer = ServiceOf(fleet.get()),
                                                      .tls = tcp == nullptr ? nullptr : tcp->tls(),
                                                      .state = &state,
                                                      .log = &log}));
  KVKEEP_ASSIGN_OR_RETURN(bulk, OpenBulkDoor(options, storage->store(), tcp.get(), &state));
  listeners->SetServing(true);
  return absl::OkStatus();
}

std::unique_ptr<AdminService> Daemon::Components::MakeAdmin(Callers* callers) {
  return std::make_unique<AdminService>(AdminService::Deps{
      .store = storage->store(),
      .state = &state,
      .drainer = drainer.get(),
      .drain_timeout = [this] { return drain_timeout.load(); },
      .clear_g4 = [this](auto done) { storage->ClearG4(std::move(done)); },
      .snapshot = [this] { return storage->snapshot(); },
      .facts =
          [this] {
            const GpuPath::Stats stats = gpu->stats();
            return StatusFacts{.arena = storage->describe(),
                               .io_engine = storage->io().describe(),
                               .gpu = gpu->describe(),
                               .gpu_arena_registered_bytes = stats.pinned_bytes,
                               .gpu_arena_refused_bytes = stats.refused_bytes,
                               .g4 = storage->g4(),
                               .fleet = SnapshotOf(fleet.get())};
          },
      .callers = callers,
      .audit = &audit,
      .config_file = config.file(),
      .config = [this] { return config.current(); },
      .reload = [this](ConfigKeeper::Done done) { config.Ask(std::move(done)); }});
}

absl::Status Daemon::Components::TakeOver(const DaemonOptions& now) {
  std::shared_ptr<Credentials> credentials;
  if (tcp != nullptr) {
    KVKEEP_ASSIGN_OR_RETURN(credentials, TcpAccess::LoadCredentials(ToTcpAccessOptions(now)));
  }
  KVKEEP_RETURN_IF_ERROR(storage->SetLimits(now.storage));
  // From here on nothing fails.
  log.SetLogLevel(now.log_level);
  state.times.SetSlow(now.slow_operation);
  drain_timeout.store(now.drain_timeout);
  drain_to_peers.store(now.drain_to_peers);
  state.pins.SetLimits(now.pinned);
  state.stalls.SetLimit(now.stall_timeout);
  listeners->SetLimits(ToListenerOptions(now));
  if (bulk != nullptr) bulk->SetLimits(BulkLimitsOf(now));
  for (uint32_t t = 0; local != nullptr && t < now.tenants.size(); ++t) {
    local->SetMaxConnections(TenantId(t), now.tenants[t].local_connections);
  }
  if (tcp != nullptr) tcp->SetCredentials(std::move(credentials));
  return absl::OkStatus();
}

void Daemon::Components::Reload() {
  manager.Reloading();
  const absl::StatusOr<ConfigKeeper::Changes> reloaded = config.Reload();
  manager.Ready(reloaded.ok()
                    ? absl::StrCat("serving; config reloaded, ", reloaded->size(), " changes")
                    : absl::StrCat("serving; config not reloaded: ",
                                   std::string(reloaded.status().message())));
}

void Daemon::Components::OnDrainBegins() {
  state.serving.store(v1::SERVING_STATE_DRAINING);
  listeners->SetServing(false);
  kv->sessions().NotifyDraining();
  if (tcp_kv != nullptr) tcp_kv->sessions().NotifyDraining();
  if (local != nullptr) local->NotifyDraining();
  log.Info("draining");
}

void Daemon::Components::StopServing() {
  config.EndWaits();
  state.sockets.ForgetAll();
  pages.reset();
  publishers.clear();
  state.loops.ForgetAll();
  for (KvService* service : {kv.get(), tcp_kv.get()}) {
    if (service != nullptr) service->sessions().EndAll();
  }
  if (drainer != nullptr) drainer->EndWaits();
  if (local != nullptr) local->Stop();
  if (bulk != nullptr) bulk->Stop(kCloseGrace);
  if (listeners != nullptr) listeners->Close(kCloseGrace);
  if (ticker != nullptr) ticker->Stop();
  if (fleet != nullptr) fleet->Stop();
  const bool quiet = storage == nullptr || storage->AwaitQuiet(kQuietTimeout);
  if (quiet && (gpu == nullptr || gpu->Stop(kQuietTimeout))) return;
  // Like a kill, an end while writes are under way loses nothing; a wait for ever would.
  log.Error("stopped with work under way: a device or the GPU's driver does not answer",
            {{"waited_seconds", absl::StrCat(kQuietTimeout.count())}});
  _exit(kExitFailure);
}

void Daemon::PrepareProcess() {
  const sigset_t signals = AwaitedSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  HearOfMemoryErrorsEarly();
  umask(0077);
  if (!MayBeDumped()) prctl(PR_SET_DUMPABLE, 0);
  RaiseDescriptorLimit();
}

Daemon::Daemon(std::unique_ptr<Components> components) : components_(std::move(components)) {}
Daemon::~Daemon() = default;

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const DaemonOptions& options,
                                                      const std::string& config_source,
                                                      std::optional<StartedConfig> config) {
  KVKEEP_RETURN_IF_ERROR(CheckPageSize(PageBytes()));
  auto components = std::make_unique<Components>(options, std::move(config));
  {
    const StartReporter reporter(&components->manager, &components->state.start);
    KVKEEP_RETURN_IF_ERROR(components->Open());
  }
  const StoreSnapshot snapshot = components->storage->snapshot();
  if (MayBeDumped()) {
    components->log.Warn("this process may be dumped and traced: KVKEEPD_DUMPABLE is set");
  }
  components->LogServing(config_source, snapshot);
  components->manager.Ready(absl::StrCat("serving; recovered ",
                                         snapshot.counters.recovered_g2_chunks,
                                         " chunks of G2"));  // those of devices come as these join
  return std::unique_ptr<Daemon>(new Daemon(std::move(components)));
}

int Daemon::AwaitStopSignal() {
  components_->config.OnReload(
      [this](const DaemonOptions& now) { return components_->TakeOver(now); });
  const sigset_t awaited = AwaitedSignals();
  int number = 0;
  while (sigwait(&awaited, &number) != 0 || number == SIGHUP) components_->Reload();
  components_->config.EndWaits();
  return number;
}

int Daemon::RunUntilSignal() {
  const sigset_t signals = StopSignals();
  const int number = AwaitStopSignal();
  const std::chrono::nanoseconds drain_timeout = components_->drain_timeout.load();
  // From here on a second signal ends the process at once.
  for (const int stop : {SIGTERM, SIGINT}) signal(stop, [](int) { _exit(kExitFailure); });
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  components_->log.Info("stopping", {{"signal", number == SIGINT ? "SIGINT" : "SIGTERM"}});
  components_->manager.Stopping(
      "draining", std::chrono::ceil<std::chrono::seconds>(drain_timeout + 2 * kQuietTimeout));
  auto drained = std::make_shared<std::promise<uint64_t>>();
  const bool to_peers = components_->drain_to_peers && components_->drainer->has_peers();
  components_->drainer->Start(drain_timeout, {.to_peers = to_peers}, [drained](Drainer::Left left) {
    drained->set_value(left.dirty_chunks);
  });
  std::future<uint64_t> left = drained->get_future();
  // A device that never answers its sync must not keep the process for ever.
  if (left.wait_for(drain_timeout + kQuietTimeout) == std::future_status::timeout) {
    components_->log.Error("drain did not end: a device does not answer");
    _exit(kExitFailure);
  }
  const uint64_t dirty_left = left.get();
  if (dirty_left > 0) {
    components_->log.Warn("not everything was written back in time",
                          {{"dirty_chunks", absl::StrCat(dirty_left)}});
  }
  components_->StopServing();
  LogStopped(*components_->storage, components_->log);
  return 0;
}

}  // namespace kvkeep
