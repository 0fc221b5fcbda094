#include "tools/bench/pattern_client.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/connect.h"
#include "tools/bench/content.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/request_order.h"
#include "tools/bench/request_player.h"

namespace kvkeep::bench {
namespace {

constexpr std::chrono::milliseconds kLongPatience{600'000};
constexpr uint64_t kPoolBytes = 32 * kMiB;  // what puts are made of, at least two of them
constexpr uint64_t kMostPayloads = 64;

// Plays a worker's requests with several players at a time.
class Play {
 public:
  Play(const PlayerContext* context, std::span<const PromptRequest* const> requests,
       bool closed_loop, double begin_at)
      : context_(*context), begin_at_(begin_at), order_(requests, closed_loop) {}

  PatternMeasured Run(uint32_t players) {
    const double cpu = ProcessCpuSeconds();
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < players; ++i) threads.emplace_back([this] { PlayOn(); });
    for (std::thread& thread : threads) thread.join();
    MutexLock lock(&mu_);
    all_.seconds = Now();
    all_.client_cpu_seconds = ProcessCpuSeconds() - cpu;
    return all_;
  }

 private:
  double Now() const { return WallSeconds() - begin_at_; }

  // Waits until a request is due and begins it. None: no request is left.
  std::optional<RequestOrder::Due> NextRequest() {
    MutexLock lock(&mu_);
    while (!order_.AllBegun()) {
      const std::optional<double> due = order_.NextDue();
      if (!due.has_value()) {
        changed_.Wait(&mu_);
        continue;
      }
      const double wait = *due - Now();
      if (wait <= 0) return order_.Begin(Now());
      changed_.WaitFor(&mu_, std::chrono::nanoseconds(static_cast<int64_t>(wait * 1e9) + 1));
    }
    return std::nullopt;
  }

  void PlayOn() {
    RequestPlayer player(&context_);
    PatternMeasured mine;
    while (const std::optional<RequestOrder::Due> due = NextRequest()) {
      const double late = std::max(Now() - due->since_seconds, 0.0);
      mine.began_late.Record(static_cast<uint64_t>(late * 1e9));
      player.Play(*due->request, begin_at_ + due->since_seconds, &mine);
      MutexLock lock(&mu_);
      order_.Ended(due->request->user, Now());
      changed_.NotifyAll();
    }
    MutexLock lock(&mu_);
    changed_.NotifyAll();  // the last request has begun: nobody waits for another
    all_.Add(mine);
  }

  const PlayerContext& context_;
  const double begin_at_;
  Mutex mu_;
  CondVar changed_;
  RequestOrder order_ ABSL_GUARDED_BY(mu_);
  PatternMeasured all_ ABSL_GUARDED_BY(mu_);
};

// The child's side.
class WorkerSide {
 public:
  WorkerSide(const ClientTarget& target, uint32_t worker) : target_(target), worker_(worker) {
    context_.seed = target.seed;
  }

  absl::StatusOr<Json> Answer(const Json& command) {
    const std::string what = command.at("do");
    if (what == "connect") return Connect();
    if (what == "prepare") return Prepare(command);
    if (what == "store") return Store(command.at("first"), command.at("count"));
    if (what == "alone") return Alone(command.at("requests"));
    if (what == "play") {
      return ToWire(Play(&context_, mine_, IsClosedLoop(kind_), command.at("begin_at"))
                        .Run(command.at("depth")));
    }
    return absl::InvalidArgumentError(absl::StrCat("no command ", what));
  }

 private:
  absl::StatusOr<Json> Connect() {
    KVKEEP_ASSIGN_OR_RETURN(client_, ConnectTo(target_, absl::StrCat("pattern ", worker_)));
    context_.client = client_.get();
    KVKEEP_ASSIGN_OR_RETURN(context_.ns,
                            client_->OpenNamespace({.model = absl::StrCat("pattern ", target_.seed),
                                                    .dtype = "bytes",
                                                    .tokens_per_chunk = 256}));
    const client::PathInfo path = client_->path();
    context_.local = path.path == client::Path::kLocal;
    return Json{{"path", std::string(client::PathName(path.path))}, {"why", path.why}};
  }

  absl::StatusOr<Json> Prepare(const Json& command) {
    const PatternOptions options = PatternFromJson(command.at("pattern"));
    KVKEEP_RETURN_IF_ERROR(options.Validate());
    kind_ = options.kind;
    pattern_ = MakePattern(options);
    mine_.clear();
    for (const PromptRequest& request : pattern_.requests) {
      if (WorkerOf(options, request.user) == worker_) mine_.push_back(&request);
    }
    context_.get_chunks = command.at("get_chunks");
    context_.recompute_seconds_per_chunk = command.at("recompute_seconds_per_chunk");
    const uint64_t bytes = command.at("chunk_bytes");
    if (context_.chunk_bytes == bytes) return Json{{"requests", mine_.size()}};
    context_.chunk_bytes = bytes;
    const uint64_t payloads = std::clamp<uint64_t>(kPoolBytes / bytes, 2, kMostPayloads);
    pool_ = MakeOwnPool(payloads * bytes);
    for (uint64_t i = 0; i < payloads; ++i) {
      FillPayload(context_.seed, i, pool_->memory().subspan(i * bytes, bytes));
    }
    context_.pool = pool_.get();
    if (context_.local) {
      // The first put makes the session's staging memory, which takes as long as touching it: an
      // engine's start, not a request's store.
      KVKEEP_RETURN_IF_ERROR(client_->AllocateStaging(bytes).status());
    }
    return Json{{"requests", mine_.size()}};
  }

  absl::StatusOr<Json> Store(uint64_t first, uint64_t count) {
    RequestPlayer player(&context_);
    PatternMeasured measured;
    KVKEEP_RETURN_IF_ERROR(player.Store(pattern_.before, first, count, &measured));
    if (measured.refused_chunks == 0) return Json{{"stored", measured.stored_chunks}};
    return absl::ResourceExhaustedError(absl::StrCat("the daemon refused ", measured.refused_chunks,
                                                     " chunks; first: ", measured.first_failure));
  }

  absl::StatusOr<Json> Alone(uint64_t requests) {
    RequestPlayer player(&context_);
    PatternMeasured measured;
    const double began = WallSeconds();
    for (size_t i = 0; i < std::min<uint64_t>(requests, mine_.size()); ++i) {
      player.RecallOnly(*mine_[i], WallSeconds(), &measured);
    }
    measured.seconds = WallSeconds() - began;
    return ToWire(measured);
  }

  const ClientTarget target_;
  const uint32_t worker_;
  std::unique_ptr<client::Client> client_;
  PlayerContext context_;
  std::unique_ptr<PayloadPool> pool_;
  PatternKind kind_ = PatternKind::kPm1753;
  Pattern pattern_;
  std::vector<const PromptRequest*> mine_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PatternClient>> PatternClient::Start(const ClientTarget& target,
                                                                    uint32_t worker) {
  KVKEEP_ASSIGN_OR_RETURN(
      auto child, ChildProcess::Fork(absl::StrCat("worker ", worker),
                                     [&target, worker]() -> ChildProcess::Handler {
                                       auto side = std::make_shared<WorkerSide>(target, worker);
                                       return [side](const Json& command) {
                                         return side->Answer(command);
                                       };
                                     }));
  std::unique_ptr<PatternClient> client(new PatternClient(std::move(child)));
  KVKEEP_ASSIGN_OR_RETURN(const Json connected,
                          client->child_->Call({{"do", "connect"}}, kChildPatience));
  client->path_ = connected.at("path");
  client->why_ = connected.at("why");
  return client;
}

absl::Status PatternClient::Prepare(const PatternJob& job) {
  depth_ = job.depth;
  return child_
      ->Call({{"do", "prepare"},
              {"pattern", ToJson(job.pattern)},
              {"chunk_bytes", job.chunk_bytes},
              {"get_chunks", job.get_chunks},
              {"recompute_seconds_per_chunk", job.recompute_seconds_per_chunk}},
             kChildPatience)
      .status();
}

absl::Status PatternClient::StoreBefore(uint64_t first, uint64_t count) {
  return child_->Call({{"do", "store"}, {"first", first}, {"count", count}}, kLongPatience)
      .status();
}

absl::StatusOr<PatternMeasured> PatternClient::RecallAlone(uint64_t requests) {
  KVKEEP_ASSIGN_OR_RETURN(const Json wire,
                          child_->Call({{"do", "alone"}, {"requests", requests}}, kLongPatience));
  return PatternMeasuredFromWire(wire);
}

absl::Status PatternClient::StartPlay(double begin_at) {
  return child_->Send({{"do", "play"}, {"begin_at", begin_at}, {"depth", depth_}});
}

absl::StatusOr<PatternMeasured> PatternClient::FinishPlay(double seconds) {
  // A daemon that cannot keep up takes longer than the pattern.
  const auto patience =
      kLongPatience + std::chrono::milliseconds(static_cast<int64_t>(seconds * 2e3));
  KVKEEP_ASSIGN_OR_RETURN(const Json wire, child_->Receive(patience));
  return PatternMeasuredFromWire(wire);
}

}  // namespace kvkeep::bench
