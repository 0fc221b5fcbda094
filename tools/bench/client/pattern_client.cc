#include "tools/bench/client/load_client.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/client/cpu_time.h"
#include "tools/bench/client/payload_pool.h"
#include "tools/bench/client/pattern_request.h"
#include "tools/bench/client/request_order.h"
#include "tools/bench/client/request_player.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kPoolBytes = 32 * kMiB;  // payloads of puts, at least two
constexpr uint64_t kMostPayloads = 64;

// Plays a worker's requests with several players at a time.
class Play {
 public:
  Play(const PlayerContext* context, std::span<const PromptRequest* const> requests,
       double begin_at)
      : context_(*context),
        begin_at_(begin_at),
        order_(requests, IsClosedLoop(context->job.pattern.kind)) {}

  PatternMeasured Run() {
    const double cpu = ProcessCpuSeconds();
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < context_.job.depth; ++i) threads.emplace_back([this] { PlayOn(); });
    for (std::thread& thread : threads) thread.join();
    MutexLock lock(&mu_);
    all_.seconds = Now();
    all_.client_cpu_seconds = ProcessCpuSeconds() - cpu;
    return all_;
  }

 private:
  double Now() const { return WallSeconds() - begin_at_; }

  // Waits until a request is due and begins it. Returns none if no request is left.
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
      mine.began_late.RecordSeconds(late);
      player.Play(*due->request, begin_at_ + due->since_seconds, /*stores=*/true, &mine);
      MutexLock lock(&mu_);
      order_.Ended(due->request->user, Now());
      changed_.NotifyAll();
    }
    MutexLock lock(&mu_);
    changed_.NotifyAll();  // the last request has begun: end the other waits
    all_.Add(mine);
  }

  const PlayerContext& context_;
  const double begin_at_;
  Mutex mu_;
  CondVar changed_;
  RequestOrder order_ ABSL_GUARDED_BY(mu_);
  PatternMeasured all_ ABSL_GUARDED_BY(mu_);
};

// A worker: an engine with its share of the users.
class Worker {
 public:
  explicit Worker(ClientContext* side) : side_(*side) { context_.side = side; }

  // Makes the pattern that the other commands use.
  absl::StatusOr<Json> Prepare(const Json& command) {
    const PatternJob job = FieldsFromJson<PatternJob>(command.at("job"));
    KVKEEP_RETURN_IF_ERROR(job.pattern.Validate());
    const uint64_t bytes = job.chunk_bytes;
    const bool other_chunks = std::exchange(context_.job, job).chunk_bytes != bytes;
    pattern_ = MakePattern(job.pattern);
    mine_.clear();
    for (const PromptRequest& request : pattern_.requests) {
      if (WorkerOf(job.pattern, request.user) == side_.number) mine_.push_back(&request);
    }
    if (!other_chunks) return Json::object();
    const uint64_t payloads = std::clamp<uint64_t>(kPoolBytes / bytes, 2, kMostPayloads);
    pool_ = std::make_unique<PayloadPool>(payloads * bytes);
    pool_->Fill(side_.seed, bytes);
    context_.pool = pool_.get();
    if (side_.local) {
      // The first put makes the session's staging memory, which takes as long as touching it:
      // part of an engine's start, not of a request's store.
      KVKEEP_RETURN_IF_ERROR(side_.client->AllocateStaging(bytes).status());
    }
    return Json::object();
  }

  // Stores some of the chunks that exist before the load.
  absl::StatusOr<Json> Store(const Json& command) {
    RequestPlayer player(&context_);
    PatternMeasured measured;
    KVKEEP_RETURN_IF_ERROR(player.Store(pattern_.before, command.at("first"), command.at("count"),
                                        &measured));
    if (measured.refused_chunks == 0) return Json::object();
    return absl::ResourceExhaustedError(absl::StrCat("the daemon refused ", measured.refused_chunks,
                                                     " chunks; first: ", measured.first_failure));
  }

  // Recalls the prompts of this worker's first requests, one at a time.
  absl::StatusOr<Json> Alone(const Json& command) {
    const uint64_t requests = command.at("requests");
    RequestPlayer player(&context_);
    PatternMeasured measured;
    const double began = WallSeconds();
    for (size_t i = 0; i < std::min<uint64_t>(requests, mine_.size()); ++i) {
      player.Play(*mine_[i], WallSeconds(), /*stores=*/false, &measured);
    }
    measured.seconds = WallSeconds() - began;
    return FieldsToJson(measured);
  }

  absl::StatusOr<Json> PlayAll(const Json& command) {
    return FieldsToJson(Play(&context_, mine_, command.at("begin_at")).Run());
  }

 private:
  ClientContext& side_;
  PlayerContext context_;
  std::unique_ptr<PayloadPool> pool_;
  Pattern pattern_;
  std::vector<const PromptRequest*> mine_;
};

}  // namespace

void AddPatternCommands(ClientContext* context, Commands* commands) {
  const auto worker = std::make_shared<Worker>(context);
  const std::pair<const char*, absl::StatusOr<Json> (Worker::*)(const Json&)> all[] = {
      {"prepare pattern", &Worker::Prepare},
      {"store before", &Worker::Store},
      {"recall alone", &Worker::Alone},
      {"play", &Worker::PlayAll}};
  for (const auto& [name, method] : all) {
    commands->Add(
        name, [worker, method = method](const Json& command) {
          return ((*worker).*method)(command);
        });
  }
}

}  // namespace kvkeep::bench
