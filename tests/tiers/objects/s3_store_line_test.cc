// S3Stores whose bodies share a line, in figures: it is used all the time, by few enough reads that
// each ends. All time is virtual.
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "tests/tiers/objects/scripted_bucket.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kChunk = 2 * kMiB;
constexpr milliseconds kStep{10};

// Bodies of an object as CurlEngine takes them (curl_engine.h), as fast as its line allows.
class LineEngine final : public HttpEngine {
 public:
  explicit LineEngine(ManualClock* clock) : clock_(*clock) {}
  ~LineEngine() override {
    while (!calls_.empty()) End(calls_.begin()->first, absl::CancelledError("stopped"));
  }

  HttpCall Start(HttpRequest request, Done done) override {
    Call call{.request = std::move(request), .done = std::move(done)};
    call.begins = clock_.Now() + milliseconds(5);
    const std::string range(FindHeader(call.request.headers, "range"));
    if (!range.empty()) {
      KVKEEP_CHECK(absl::SimpleAtoi(range.substr(6, range.find('-') - 6), &call.at));
      call.status = 206;
    }
    calls_.emplace(++started_, std::move(call));
    return HttpCall(started_);
  }
  void Cancel(HttpCall call) override {
    RunAt(clock_.Now(), [this, call] { End(call.value(), absl::CancelledError("cancelled")); });
  }
  void RunAt(MonotonicTime at, Executor::Task task) override {
    tasks_.emplace(at, std::move(task));
  }

  size_t bodies() const {
    return static_cast<size_t>(std::count_if(calls_.begin(), calls_.end(), [&](const auto& call) {
      return call.second.begins <= clock_.Now();
    }));
  }
  // Bytes that come of each body.
  void Step(uint64_t bytes) {
    const MonotonicTime now = clock_.Now();
    while (!tasks_.empty() && tasks_.begin()->first <= now) {
      auto due = tasks_.extract(tasks_.begin());
      std::move(due.mapped())();
    }
    std::vector<uint64_t> numbers;
    for (const auto& [number, call] : calls_) numbers.push_back(number);
    for (const uint64_t number : numbers) StepCall(number, bytes);
    EndSlow();
  }
  uint64_t given = 0;  // bytes

 private:
  struct Call {
    HttpRequest request;
    Done done;
    int status = 200;
    MonotonicTime begins{0}, stretch{0};
    uint64_t at = 0, moved = 0, before = 0;
    bool begun = false;
  };
  void StepCall(uint64_t number, uint64_t bytes) {
    const MonotonicTime now = clock_.Now();
    const auto at = calls_.find(number);
    if (at == calls_.end() || now < at->second.begins) return;
    Call& call = at->second;
    if (now >= call.request.deadline) {
      return End(number, absl::DeadlineExceededError("late"), call.begun);
    }
    if (!std::exchange(call.begun, true)) {
      call.stretch = now;
      HttpHead head{.status = call.status, .headers = {{"ETag", "\"v\""}},
                    .content_bytes = kChunk - call.at};
      if (call.status == 206) {
        head.headers.push_back({"Content-Range", absl::StrCat("bytes ", call.at, "-", kChunk - 1,
                                                              "/", kChunk)});
      }
      if (absl::Status status = call.request.sink->Begin(head); !status.ok()) {
        return End(number, std::move(status));
      }
    }
    static const std::string body(kChunk, 'x');
    const uint64_t some = std::min(bytes, kChunk - call.at);
    given += some;
    call.at += some;
    call.moved += some;
    absl::Status status = call.request.sink->Take(AsBytes(body).first(some));
    if (!status.ok() || call.at == kChunk) End(number, std::move(status));
  }
  void EndSlow() {
    const MonotonicTime now = clock_.Now();
    auto slow = calls_.end();
    for (auto at = calls_.begin(); at != calls_.end(); ++at) {
      Call& call = at->second;
      if (!call.begun || now < call.stretch + seconds(2)) continue;
      const uint64_t least = call.request.least_bytes_per_second.value_or(kMiB);
      if (call.moved - call.before >= 2 * least) {
        call.stretch = now;
        call.before = call.moved;
      } else if (slow == calls_.end() || call.moved < slow->second.moved) {
        slow = at;
      }
    }
    if (slow == calls_.end()) return;
    for (auto& [number, call] : calls_) {
      call.stretch = now;
      call.before = call.moved;
    }
    End(slow->first, absl::DeadlineExceededError("slow"), true);
  }
  void End(uint64_t number, absl::Status way, bool slow = false) {
    const auto at = calls_.find(number);
    if (at == calls_.end()) return;
    Call ended = std::move(at->second);
    calls_.erase(at);
    HttpAnswer answer{.status = std::move(way), .connected = true, .slow = slow};
    if (ended.begun) {
      answer.head = {.status = ended.status, .headers = {{"ETag", "\"v\""}}};
      answer.body_bytes = ended.moved;
    }
    std::move(ended.done)(std::move(answer));
  }

  ManualClock& clock_;
  uint64_t started_ = 0;
  std::multimap<MonotonicTime, Executor::Task> tasks_;
  std::map<uint64_t, Call> calls_;
};

class LineSink final : public ObjectSink {
 public:
  absl::Status Begin(const ObjectHead&) override { return absl::OkStatus(); }
  absl::Status Take(std::span<const std::byte> bytes) override {
    taken += bytes.size();
    return absl::OkStatus();
  }
  uint64_t taken = 0;
};

// Requests chunks, as many at a time as a daemon reads at once, each within 30 seconds; a chunk
// that did not come is requested again.
class LineNode {
 public:
  LineNode(uint64_t seed, ManualClock* clock, int chunks)
      : clock_(*clock), random_(seed), credentials_(MakeKeys(), clock, &random_), left_(chunks) {
    credentials_.Tick();
    auto made = std::make_unique<LineEngine>(clock);
    engine = made.get();
    store = std::make_unique<S3Store>(
        S3Urls::Make({.endpoints = {"http://h:9000"}, .bucket = "bucket"}).value(),
        S3StoreOptions{}, std::move(made), &credentials_, clock, &random_);
    for (int i = 0; i < kAtOnce && left_ > 0; ++i) Want();
  }
  ~LineNode() {
    stopping_ = true;
    store.reset();
  }
  bool done() const { return left_ == 0 && wanted_ == 0; }

  LineEngine* engine = nullptr;
  std::unique_ptr<S3Store> store;

 private:
  static constexpr int kAtOnce = 48;

  static std::unique_ptr<S3KeySource> MakeKeys() {
    return std::make_unique<SetKeySource>(std::make_shared<std::string>("secret"));
  }
  void Want() {
    --left_;
    ++wanted_;
    auto sink = std::make_unique<LineSink>();
    LineSink* const into = sink.get();
    store->Get({.name = "n", .deadline = clock_.Now() + seconds(30)}, into,
               [this, sink = std::move(sink)](const ObjectAnswer& answer) {
                 --wanted_;
                 if (answer.ok()) {
                   CHECK(sink->taken == kChunk);
                 } else {
                   ++left_;
                 }
                 if (left_ == 0 || stopping_) return;
                 engine->RunAt(clock_.Now() + (answer.ok() ? milliseconds(0) : seconds(1)),
                               [this] { if (left_ > 0) Want(); });
               });
  }

  ManualClock& clock_;
  SeededRandom random_;
  S3Credentials credentials_;
  int left_ = 0, wanted_ = 0;
  bool stopping_ = false;
};

struct Fetched {
  double seconds = 0;  // of the slowest node
  uint64_t given = 0;  // bytes that the line carried
  uint64_t opened = 0;
};

Fetched FetchAll(size_t nodes, int chunks, uint64_t bytes_per_second) {
  ManualClock clock;
  std::vector<std::unique_ptr<LineNode>> all;
  for (size_t i = 0; i < nodes; ++i) {
    all.push_back(std::make_unique<LineNode>(i + 1, &clock, chunks));
  }
  const MonotonicTime begun = clock.Now();
  const uint64_t a_step = bytes_per_second * static_cast<uint64_t>(kStep.count()) / 1000;
  const auto done = [&] {
    return std::all_of(all.begin(), all.end(), [](const auto& node) { return node->done(); });
  };
  while (!done() && clock.Now() < begun + std::chrono::hours(2)) {
    clock.Advance(kStep);
    size_t bodies = 0;
    for (const auto& node : all) bodies += node->engine->bodies();
    for (const auto& node : all) node->engine->Step(a_step / std::max<size_t>(bodies, 1));
  }
  Fetched fetched{.seconds = std::chrono::duration<double>(clock.Now() - begun).count()};
  for (const auto& node : all) {
    fetched.given += node->engine->given;
    fetched.opened += node->store->counters().breaker_opened;
  }
  return fetched;
}

}  // namespace

TEST_CASE("all that a node wants comes in 1.3 times of what a slow line takes by itself") {
  const uint64_t mb = GENERATE(40, 20, 10, 5);
  const Fetched fetched = FetchAll(1, 100, mb * 1'000'000);
  const double alone = 100.0 * kChunk / (static_cast<double>(mb) * 1e6);
  CAPTURE(mb, fetched.seconds, alone, fetched.given, fetched.opened);
  CHECK(fetched.seconds <= 1.3 * alone);
  CHECK(fetched.given <= 1.1 * 100 * kChunk);
  CHECK(fetched.opened == 0);
}

TEST_CASE("64 nodes that share a slow line each have their part of it", "[figures]") {
  const auto [mb, chunks] = GENERATE(table<uint64_t, int>({{1000, 100}, {10, 10}}));
  const Fetched fetched = FetchAll(64, chunks, mb * 1'000'000);
  const double alone = 64.0 * chunks * kChunk / (static_cast<double>(mb) * 1e6);
  CAPTURE(mb, fetched.seconds, alone, fetched.given, fetched.opened);
  CHECK(fetched.seconds <= 1.5 * alone);
  CHECK(fetched.opened == 0);
}

}  // namespace kvkeep
