#include "tiers/objects/curl_engine.h"

#include <absl/strings/str_cat.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/objects/curl_transfer.h"
#include "tiers/objects/trusted_cas.h"

namespace kvkeep {
namespace {

constexpr uint32_t kMostConnections = 1024;
constexpr std::chrono::milliseconds kLongestPoll{1000};

absl::Status CheckCurlOptions(const CurlEngineOptions& options) {
  const auto refuse = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("HTTP client: ", what));
  };
  if (options.connections < 1 || options.connections > kMostConnections) {
    return refuse(absl::StrCat("connections is ", options.connections, "; 1 to ", kMostConnections,
                               " are allowed"));
  }
  if (options.max_head_bytes < 1024 || options.max_text_bytes < 1024) {
    return refuse("max_head_bytes and max_text_bytes must be 1,024 at least");
  }
  if (options.connect_within.count() <= 0 || options.slow_for.count() <= 0 ||
      options.continue_within.count() <= 0 || options.unacknowledged_for.count() <= 0 ||
      options.connection_idle.count() <= 0 || options.connection_life.count() <= 0) {
    return refuse("times must be above 0");
  }
  return absl::OkStatus();
}

// Sets libcurl up, once a process, before any thread of ours uses it; never undone.
bool CurlIsThere() {
  static const bool there = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return there;
}

CurlEngineOptions WithTrustedCas(CurlEngineOptions options) {
  if (!options.ca_file.empty() || !options.ca_folder.empty()) return options;
  const TrustedCas system = FindTrustedCas([](const char* name) { return std::getenv(name); });
  options.ca_file = system.file;
  options.ca_folder = system.folder;
  return options;
}

}  // namespace

void CurlEngine::FreeMulti::operator()(void* multi) const { curl_multi_cleanup(multi); }

absl::StatusOr<std::unique_ptr<CurlEngine>> CurlEngine::Make(const CurlEngineOptions& options,
                                                             Clock* clock) {
  KVKEEP_RETURN_IF_ERROR(CheckCurlOptions(options));
  std::unique_ptr<void, FreeMulti> multi(CurlIsThere() ? curl_multi_init() : nullptr);
  if (multi == nullptr) return absl::UnavailableError("libcurl cannot be set up");
  const long connections = options.connections;
  KVKEEP_CHECK(curl_multi_setopt(multi.get(), CURLMOPT_MAX_TOTAL_CONNECTIONS, connections) ==
               CURLM_OK);
  KVKEEP_CHECK(curl_multi_setopt(multi.get(), CURLMOPT_MAXCONNECTS, connections) == CURLM_OK);
  KVKEEP_CHECK(curl_multi_setopt(multi.get(), CURLMOPT_PIPELINING, long{CURLPIPE_NOTHING}) ==
               CURLM_OK);
  return std::unique_ptr<CurlEngine>(
      new CurlEngine(WithTrustedCas(options), clock, std::move(multi)));
}

CurlEngine::CurlEngine(const CurlEngineOptions& options, Clock* clock,
                       std::unique_ptr<void, FreeMulti> multi)
    : options_(options), clock_(*clock), multi_(std::move(multi)), thread_([this] { Loop(); }) {}

CurlEngine::~CurlEngine() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  curl_multi_wakeup(multi_.get());
  thread_.join();
}

HttpCall CurlEngine::Start(HttpRequest request, Done done) {
  KVKEEP_CHECK(done != nullptr);
  HttpCall call;
  {
    MutexLock lock(&mu_);
    call = HttpCall(++last_call_);
    started_.push_back({call, std::move(request), std::move(done)});
  }
  curl_multi_wakeup(multi_.get());
  return call;
}

void CurlEngine::Cancel(HttpCall call) {
  {
    MutexLock lock(&mu_);
    cancelled_.push_back(call);
  }
  curl_multi_wakeup(multi_.get());
}

void CurlEngine::RunAt(MonotonicTime at, Executor::Task task) {
  KVKEEP_CHECK(task != nullptr);
  {
    MutexLock lock(&mu_);
    ordered_.emplace_back(at, std::move(task));
  }
  curl_multi_wakeup(multi_.get());
}

void CurlEngine::Loop() {
  pthread_setname_np(pthread_self(), "kvkeep-http");
  while (TakeOrders()) {
    EndLate();
    RunDue();
    StartWaiting();
    int running = 0;
    KVKEEP_CHECK(curl_multi_perform(multi_.get(), &running) == CURLM_OK);
    EndFinished();
    EndLate();
    // Late is called again below for transfers that moved meanwhile, so a stretch begins with its
    // first byte.
    if (!waiting_.empty() && running_.size() < options_.connections) continue;
    KVKEEP_CHECK(curl_multi_poll(multi_.get(), nullptr, 0, PollMillis(), nullptr) == CURLM_OK);
  }
  EndAll();
}

bool CurlEngine::TakeOrders() {
  std::vector<Waiting> started;
  std::vector<HttpCall> cancelled;
  bool stopping = false;
  {
    MutexLock lock(&mu_);
    started.swap(started_);
    cancelled.swap(cancelled_);
    for (auto& [at, task] : ordered_) tasks_.emplace(at, std::move(task));
    ordered_.clear();
    stopping = stopping_;
  }
  for (Waiting& order : started) {
    if (waiting_.size() < options_.max_waiting) {
      waiting_.push_back(std::move(order));
      continue;
    }
    HttpAnswer answer;
    answer.status = absl::ResourceExhaustedError(
        absl::StrCat(options_.max_waiting, " requests wait already, the most allowed"));
    std::move(order.done)(std::move(answer));
  }
  for (const HttpCall call : cancelled) End(call, absl::CancelledError("cancelled"));
  return !stopping;
}

void CurlEngine::RunDue() {
  const MonotonicTime now = clock_.Now();
  while (!tasks_.empty() && tasks_.begin()->first <= now) {
    Executor::Task task = std::move(tasks_.begin()->second);
    tasks_.erase(tasks_.begin());
    std::move(task)();
  }
}

void CurlEngine::StartWaiting() {
  while (!waiting_.empty() && running_.size() < options_.connections) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    auto transfer = std::make_unique<Transfer>(options_, std::move(next.request),
                                               std::move(next.done), clock_.Now());
    absl::Status prepared = transfer->Prepare(next.call);
    if (prepared.ok() && curl_multi_add_handle(multi_.get(), transfer->handle()) != CURLM_OK) {
      prepared = absl::ResourceExhaustedError("libcurl takes no more requests");
    }
    if (!prepared.ok()) {
      transfer->Answer(std::move(prepared), clock_.Now());
      continue;
    }
    KVKEEP_CHECK(running_.emplace(next.call, std::move(transfer)).second);
  }
}

void CurlEngine::EndLate() {
  const MonotonicTime now = clock_.Now();
  std::vector<std::pair<HttpCall, absl::Status>> late;
  std::optional<HttpCall> slow;
  for (const auto& [call, transfer] : running_) {
    if (absl::Status why = transfer->Late(now); !why.ok()) {
      late.emplace_back(call, std::move(why));
    } else if (transfer->IsSlow(now) &&
               (!slow.has_value() || transfer->GoesBefore(*running_.at(*slow)))) {
      slow = call;
    }
  }
  if (slow.has_value()) {
    late.emplace_back(*slow, running_.at(*slow)->GiveUpSlow());
    for (const auto& [call, transfer] : running_) transfer->MeasureAnew(now);
  }
  for (const Waiting& order : waiting_) {
    if (now < order.request.deadline) continue;
    late.emplace_back(order.call, absl::DeadlineExceededError("its turn did not come in time"));
  }
  for (auto& [call, why] : late) End(call, std::move(why));
}

void CurlEngine::EndFinished() {
  int left = 0;
  while (CURLMsg* const message = curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    void* call = nullptr;
    const CURLcode code = message->data.result;
    KVKEEP_CHECK(curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call) == CURLE_OK);
    const HttpCall ended(reinterpret_cast<uint64_t>(call));
    const auto at = running_.find(ended);
    KVKEEP_CHECK(at != running_.end());
    End(ended, at->second->Finished(code));
  }
}

void CurlEngine::End(HttpCall call, absl::Status why) {
  if (const auto at = running_.find(call); at != running_.end()) {
    const std::unique_ptr<Transfer> transfer = std::move(at->second);
    running_.erase(at);
    curl_multi_remove_handle(multi_.get(), transfer->handle());
    return transfer->Answer(std::move(why), clock_.Now());
  }
  const auto at = std::find_if(waiting_.begin(), waiting_.end(),
                               [&](const Waiting& order) { return order.call == call; });
  if (at == waiting_.end()) return;
  Done done = std::move(at->done);
  waiting_.erase(at);
  HttpAnswer answer;
  answer.status = std::move(why);
  std::move(done)(std::move(answer));
}

// Repeats, as a callback may start another request.
void CurlEngine::EndAll() {
  do {
    TakeOrders();
    while (!running_.empty()) End(running_.begin()->first, absl::CancelledError("stopped"));
    while (!waiting_.empty()) End(waiting_.front().call, absl::CancelledError("stopped"));
  } while (AnyStarted());
  KVKEEP_CHECK(running_.empty() && waiting_.empty());
}

bool CurlEngine::AnyStarted() {
  MutexLock lock(&mu_);
  return !started_.empty();
}

int CurlEngine::PollMillis() const {
  const MonotonicTime now = clock_.Now();
  MonotonicTime wake = now + kLongestPoll;
  for (const auto& [call, transfer] : running_) wake = std::min(wake, transfer->WakeAt());
  for (const Waiting& order : waiting_) wake = std::min(wake, order.request.deadline);
  if (!tasks_.empty()) wake = std::min(wake, tasks_.begin()->first);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - now);
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

}  // namespace kvkeep
