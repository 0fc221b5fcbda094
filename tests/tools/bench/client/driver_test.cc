#include "tools/bench/client/driver.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tools/bench/client/cpu_time.h"

namespace kvkeep::bench {
namespace {

// An operation that acts as told; Start answers on another thread, as the client library does.
class Scripted final : public Operation {
 public:
  struct Script {
    int fail_after = 1 << 30;  // calls that end well first
    uint64_t wrong_bytes = 0;
    bool fail_at_once = false;  // inside Start
    std::chrono::milliseconds prepares_for{0};
  };
  explicit Scripted(Script script) : script_(script) {}
  ~Scripted() override {
    MutexLock lock(&mu_);  // nothing is under way, so no thread will use it
    for (std::thread& thread : threads_) thread.join();
  }

  void Prepare() override {
    KVKEEP_CHECK(!under_way_);
    std::this_thread::sleep_for(script_.prepares_for);  // it is the measured one
    prepared_ = true;
  }
  CallResult Run() override {
    KVKEEP_CHECK(prepared_.exchange(false));
    KVKEEP_CHECK(!under_way_.exchange(true));
    const CallResult result = Result();
    under_way_ = false;
    return result;
  }
  void Start(absl::AnyInvocable<void(CallResult) &&> done) override {
    KVKEEP_CHECK(prepared_.exchange(false));
    KVKEEP_CHECK(!under_way_.exchange(true));
    const CallResult result = Result();
    const auto finish = [this, result](auto& callback) {
      under_way_ = false;
      std::move(callback)(result);
    };
    if (script_.fail_at_once) return finish(done);
    MutexLock lock(&mu_);
    threads_.emplace_back([done = std::move(done), finish]() mutable { finish(done); });
  }
  VerifyResult Verify(uint64_t budget_bytes) override {
    KVKEEP_CHECK(!under_way_);
    ++verified;
    return {.bytes = budget_bytes, .wrong = script_.wrong_bytes};
  }

  int verified = 0;

 private:
  CallResult Result() {
    if (script_.fail_at_once || ++calls_ > script_.fail_after) {
      return {.status = absl::NotFoundError("scripted")};
    }
    return {.chunks = 2, .bytes = 10, .copied_bytes = 4, .first_piece_ns = 5};
  }

  const Script script_;
  int calls_ = 0;
  std::atomic<bool> prepared_{false};
  std::atomic<bool> under_way_{false};
  Mutex mu_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

std::vector<std::unique_ptr<Operation>> Slots(size_t count, Scripted::Script script) {
  std::vector<std::unique_ptr<Operation>> slots;
  for (size_t i = 0; i < count; ++i) slots.push_back(std::make_unique<Scripted>(script));
  return slots;
}

}  // namespace

TEST_CASE("every call is counted once with what it brought, alone or several at a time") {
  for (size_t depth : {1, 4}) {
    const auto slots = Slots(depth, {});
    const Measured measured = Drive(slots, {.seconds = 10, .max_ops = 100});
    CHECK(measured.ops == 100);
    CHECK(measured.chunks == 200);
    CHECK(measured.bytes == 1000);
    CHECK(measured.copied_bytes == 400);
    CHECK(measured.latency.count() == 100);
    CHECK(measured.first_piece.count() == 100);
    CHECK(measured.failed_ops == 0);
    CHECK(measured.seconds > 0);
  }
}

TEST_CASE("the end comes with the time when there is no limit of calls") {
  const auto slots = Slots(1, {});
  const Measured measured = Drive(slots, {.seconds = 0.02, .slice_seconds = 0.005});
  CHECK(measured.seconds >= 0.02);
  CHECK(measured.ops > 0);
}

TEST_CASE("making up what a call is about is no part of its time") {
  using namespace std::chrono_literals;
  const auto slots = Slots(1, {.prepares_for = 20ms});
  const double began = WallSeconds();
  const Measured measured = Drive(slots, {.seconds = 10, .max_ops = 10});
  const double wall_seconds = WallSeconds() - began;
  CHECK(wall_seconds >= 0.2);
  CHECK(measured.latency.count() == 10);
  CHECK(measured.seconds <= wall_seconds - 0.2);
  CHECK(static_cast<double>(measured.latency.sum_ns()) <= (wall_seconds - 0.2) * 1e9);
}

TEST_CASE("each slice is verified with nothing in flight, wrong bytes are counted") {
  for (size_t depth : {1, 3}) {
    const auto slots = Slots(depth, {.wrong_bytes = 2});
    const Measured measured =
        Drive(slots, {.seconds = 0.01, .slice_seconds = 0.002, .verify_bytes_per_slice = 300});
    const int slices = static_cast<Scripted*>(slots[0].get())->verified;
    CHECK(slices >= 1);
    CHECK(measured.wrong_bytes == depth * 2 * static_cast<uint64_t>(slices));
    CHECK(measured.verified_bytes == 300 * static_cast<uint64_t>(slices));
  }
  const auto slots = Slots(1, {});
  CHECK(Drive(slots, {.seconds = 0.002, .verify = false}).verified_bytes == 0);
}

TEST_CASE("calls that fail are counted apart, keep their first reason, and end a hopeless run") {
  for (size_t depth : {1, 4}) {
    const auto slots = Slots(depth, {.fail_after = 5});
    const Measured measured = Drive(slots, {.seconds = 60});
    CHECK(measured.ops == 5 * depth);
    CHECK(measured.failed_ops > 0);
    CHECK(measured.latency.count() == measured.ops);
    CHECK(measured.first_failure == "NOT_FOUND: scripted");
    CHECK(measured.seconds < 30);
  }
}

TEST_CASE("a call that fails inside its start is not begun again there") {
  const auto slots = Slots(8, {.fail_at_once = true});
  const Measured measured = Drive(slots, {.seconds = 60});
  CHECK(measured.ops == 0);
  CHECK(measured.failed_ops == 8);
}

}  // namespace kvkeep::bench
