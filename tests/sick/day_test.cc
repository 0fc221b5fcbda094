// A day of work: engines that talk, and every minute a fault that the daemon outlives. Nothing is
// wrong, nothing grows, and the hit ratio stays. The whole day runs by hand; here it is one fault
// of each kind:
//   KVKEEP_DAY_FAULTS=1440 KVKEEP_DAY_PERIOD_SECONDS=60 sick_day_test
// KVKEEP_DAY_SEED draws other faults and conversations.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <thread>

#include "tests/e2e/crowd.h"
#include "tests/e2e/descriptors.h"
#include "tests/e2e/worker_process.h"
#include "tests/fakes/from_environment.h"
#include "tests/sick/conversations.h"
#include "tests/sick/sick_site.h"
#include "tools/kvkeep/replay_worker.h"

namespace kvkeep::sick {
namespace {

using std::chrono::steady_clock;

constexpr size_t kEngines = 2;  // one on the local path, one by gRPC
constexpr milliseconds kThink{4};
constexpr uint64_t kServedAfter = 10;  // requests, once a fault is over
constexpr milliseconds kLongestFault{10'000};
constexpr milliseconds kPatience{90'000};  // an offline device is tried again each 30 s
// Limits on growth in a run, from its second third to its last.
constexpr double kGrownBytes = 24 << 20;
constexpr double kLostHitPoints = 15;
constexpr double kMoreThreads = 8;  // gRPC makes some for many calls at once, and keeps them

// A fault that strikes a daemon at work for a while, and ends.
struct Fault {
  const char* name;
  std::function<void(SickSite&, milliseconds)> strike;
};

void Wait(milliseconds time) {
  std::this_thread::sleep_for(time);  // how long the fault, or the load, is to last
}

Fault OfTheDisk(const char* name, std::function<void(SickDisk&)> strike) {
  return {name, [strike = std::move(strike)](SickSite& sick, milliseconds time) {
            strike(sick.disk);
            Wait(time);
            sick.disk.Heal();
          }};
}

// A worker that is killed with leases of chunks and with staging memory.
void KillWorker(SickSite& sick, milliseconds time) {
  const auto chunks = Chunks(1, 4, 64 << 10);
  REQUIRE(Engine(sick.site).PutAll(chunks));
  e2e::WorkerProcess worker(sick.site, {.warm = chunks, .cold = {}, .point = "hold"});
  CHECK(worker.ReadLine() == "holding");
  Wait(time);
  worker.Signal(SIGKILL);
  worker.AwaitEnd();
}

void ComeAndGo(SickSite& sick, milliseconds time) {
  using e2e::Crowd;
  Crowd idle({.address = sick.site.socket(),
              .members = 100,
              .manner = Crowd::Manner::kIdle,
              .churn = true});
  Crowd silent({.address = sick.site.local_socket(),
                .type = SOCK_SEQPACKET,
                .members = 100,
                .manner = Crowd::Manner::kHello,
                .churn = true});
  Wait(time);
}

const std::vector<Fault>& Faults() {
  static const auto* const all = new std::vector<Fault>{
      OfTheDisk("reads fail", [](SickDisk& d) { d.FailWithEio(SICK_READS); }),
      OfTheDisk("one read in fifty fails", [](SickDisk& d) { d.FailWithEio(SICK_READS, 20); }),
      OfTheDisk("every I/O takes 50 ms longer", [](SickDisk& d) { d.Delay(SICK_ALL, 50'000); }),
      OfTheDisk("every I/O hangs", [](SickDisk& d) { d.Hang(SICK_ALL); }),
      OfTheDisk("writes hang", [](SickDisk& d) { d.Hang(SICK_WRITES | SICK_FLUSHES); }),
      {"the daemon is stopped",
       [](SickSite& sick, milliseconds time) {
         sick.site.Signal(SIGSTOP);
         Wait(std::min(time, milliseconds(3'000)));
         sick.site.Signal(SIGCONT);
       }},
      {"its config is read again, all the time",
       [](SickSite& sick, milliseconds time) {
         for (const auto end = steady_clock::now() + time; steady_clock::now() < end;) {
           sick.site.Signal(SIGHUP);
           Wait(milliseconds(20));
         }
       }},
      {"a worker is killed", KillWorker},
      {"connections come and go", ComeAndGo}};
  return *all;
}

// The daemon after a fault, without connections, and its work meanwhile.
struct Period {
  double hit_percent = 0, private_bytes = 0, descriptors = 0, threads = 0;
};

// Engines that play conversations until told to end.
class Load {
 public:
  Load(const e2e::Site& site, std::vector<Conversations>& conversations) {
    for (size_t i = 0; i < conversations.size(); ++i) {
      options_.push_back(
          {.endpoint = site.endpoint(),
           .chunk_sizes = {64 << 10, 16 << 10, 130'000},
           .tolerate_restart = true,
           .path = i % 2 == 0 ? client::PathChoice::kAuto : client::PathChoice::kGrpc});
    }
    failures_.resize(conversations.size());
    reports_.resize(conversations.size());
    for (size_t i = 0; i < conversations.size(); ++i) {
      threads_.emplace_back([this, i, &conversation = conversations[i]] {
        auto worker = tools::ReplayWorker::Create(options_[i], static_cast<int>(i));
        failures_[i] = worker.status();
        while (failures_[i].ok() && !ended_) {
          failures_[i] = (*worker)->Play(conversation.Next());
          ++played_;
          Wait(kThink);
        }
        if (worker.ok()) reports_[i] = (*worker)->TakeReport();
      });
    }
  }
  ~Load() {
    ended_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  uint64_t played() const { return played_; }
  tools::ReplayReport End() {
    ended_ = true;
    tools::ReplayReport all;
    for (size_t i = 0; i < threads_.size(); ++i) {
      threads_[i].join();
      INFO(failures_[i]);
      CHECK(failures_[i].ok());
      all.Add(std::move(reports_[i]));
    }
    return all;
  }

 private:
  std::vector<tools::ReplayOptions> options_;
  std::vector<absl::Status> failures_;
  std::vector<tools::ReplayReport> reports_;
  std::atomic<uint64_t> played_{0};  // requests
  std::atomic<bool> ended_{false};
  std::vector<std::thread> threads_;  // use all of the above
};

// At rest: no client is there, nothing is held or on its way. A connection closes after its
// session.
bool AtRest(const SickSite& sick) {
  const v1::StatusResponse now = sick.site.Status();
  for (const char* open :
       {"local_open_connections", "local_closing_descriptors", "open_session_streams"}) {
    if (now.counters().at(open) != 0) return false;
  }
  return now.sessions_size() == 0 && now.g2().leased_bytes() == 0 &&
         now.g2().reserved_bytes() == 0 && now.g2().dirty_bytes() == 0;
}

double Median(const std::vector<Period>& periods, size_t begin, size_t count,
              double Period::*figure) {
  std::vector<double> all;
  for (size_t i = begin; i < begin + count; ++i) all.push_back(periods[i].*figure);
  return tools::Percentile(all, 0.5);
}

// One period: load, a fault that ends in time, and the daemon at work again; then at rest.
Period Live(SickSite& sick, std::vector<Conversations>& conversations, const Fault& fault,
            milliseconds period, tools::ReplayReport& sum) {
  const auto began = steady_clock::now();
  Load load(sick.site, conversations);
  Wait(period / 4);
  fault.strike(sick, std::min(period / 2, kLongestFault));
  const bool well = Eventually([&] { return sick.State() == "ok"; }, kPatience);
  INFO(sick.State() << ": " << sick.site.Status().devices(0).message());
  REQUIRE(well);
  const uint64_t until = load.played() + kServedAfter;
  REQUIRE(Eventually([&] { return load.played() >= until; }, kPatience));
  Wait(std::max(period / 4,
                std::chrono::duration_cast<milliseconds>(began + period - steady_clock::now())));
  tools::ReplayReport report = load.End();
  CHECK(report.wrong_bytes == 0);
  const bool rested = Eventually([&] { return AtRest(sick); }, kPatience);
  const v1::StatusResponse status = sick.site.Status();
  INFO(status.ShortDebugString());
  REQUIRE(rested);
  const e2e::ProcessUsage usage = e2e::UsageOf(status.pid());
  const size_t descriptors = e2e::DescriptorsOf(status.pid(), sick.disk.dir()).count;
  const Period lived{.hit_percent = 100 * report.hit_ratio(),
                     .private_bytes = static_cast<double>(usage.private_bytes),
                     .descriptors = static_cast<double>(descriptors),
                     .threads = static_cast<double>(usage.threads)};
  std::printf(
      "%s: %lu requests, %.1f %% of %lu chunks hit, %lu calls failed; at rest %.1f MiB private, "
      "%.0f descriptors, %.0f threads\n",
      fault.name, report.requests, lived.hit_percent, report.chunk_refs,
      report.unavailable + report.failed_calls, lived.private_bytes / (1 << 20), lived.descriptors,
      lived.threads);
  std::fflush(stdout);
  sum.Add(std::move(report));
  return lived;
}

// Compares the last third with the second. The first is only to warm up: caches, and memory that
// the allocator keeps.
void Judge(const std::vector<Period>& periods, const tools::ReplayReport& sum) {
  const size_t third = periods.size() / 3;
  REQUIRE(third > 0);
  const auto median = [&](size_t begin) {
    return Period{.hit_percent = Median(periods, begin, third, &Period::hit_percent),
                  .private_bytes = Median(periods, begin, third, &Period::private_bytes),
                  .descriptors = Median(periods, begin, third, &Period::descriptors),
                  .threads = Median(periods, begin, third, &Period::threads)};
  };
  const Period early = median(third), late = median(periods.size() - third);
  std::printf(
      "faults %zu | requests %lu | chunks hit %lu of %lu | wrong %lu | calls failed %lu | "
      "second third and last: hits %.1f %%, %.1f %%; private MiB %.1f, %.1f; descriptors "
      "%.0f, %.0f; threads %.0f, %.0f\n",
      periods.size(), sum.requests, sum.leading_hit_chunks, sum.chunk_refs, sum.wrong_bytes,
      sum.unavailable + sum.failed_calls, early.hit_percent, late.hit_percent,
      early.private_bytes / (1 << 20), late.private_bytes / (1 << 20), early.descriptors,
      late.descriptors, early.threads, late.threads);
  CHECK(2 * sum.leading_hit_chunks > sum.chunk_refs);
  CHECK(late.hit_percent > early.hit_percent - kLostHitPoints);
  CHECK(late.private_bytes < early.private_bytes + kGrownBytes);
  CHECK(late.descriptors <= early.descriptors);
  CHECK(late.threads <= early.threads + kMoreThreads);
}

}  // namespace

TEST_CASE("conversations go on from what was said, and the same seed says the same") {
  const Conversations::Options options{.seed = 4, .first_id = 1'000, .users = 3};
  Conversations one(options), same(options);
  size_t longest = 0, shared = 0;
  for (int i = 0; i < 500; ++i) {
    const auto request = one.Next().hash_ids;
    CHECK(same.Next().hash_ids == request);
    longest = std::max(longest, request.size());
    shared += request[0] == 0;
    for (size_t at = 0; at < request.size(); ++at) {
      CHECK((request[at] < options.prompts * options.prompt_chunks) == (at < 6));
    }
  }
  CHECK(longest > 6 + options.turns);
  CHECK(longest <= 6 + options.turns * options.most_chunks_a_turn);
  CHECK(shared > 500 / 6);  // the first of twelve prompts has a third of them
}

TEST_CASE("load with a fault each period: nothing wrong, nothing grows, as many hits") {
  if (!CanBeSick()) return;
  const uint64_t seed = FromEnvironment("KVKEEP_DAY_SEED", 1);
  const uint64_t faults = FromEnvironment("KVKEEP_DAY_FAULTS", Faults().size());
  const milliseconds period(1000 * FromEnvironment("KVKEEP_DAY_PERIOD_SECONDS", 2));
  INFO("seed " << seed);
  SickSite sick;
  std::vector<Conversations> conversations;
  for (size_t i = 0; i < kEngines; ++i) {
    conversations.emplace_back(
        Conversations::Options{.seed = seed * kEngines + i, .first_id = (i + 1) << 40});
  }
  SeededRandom random(seed);
  std::vector<size_t> order;  // each once before one comes again
  std::vector<Period> periods;
  tools::ReplayReport sum;
  while (periods.size() < faults) {
    if (order.empty()) {
      for (size_t i = 0; i < Faults().size(); ++i) {
        order.insert(order.begin() + static_cast<ptrdiff_t>(random.Below(i + 1)), i);
      }
    }
    const Fault& fault = Faults()[order.back()];
    order.pop_back();
    INFO("fault " << periods.size() << ": " << fault.name);
    periods.push_back(Live(sick, conversations, fault, period, sum));
  }
  Judge(periods, sum);
  sick.StopInTime();
}

}  // namespace kvkeep::sick
