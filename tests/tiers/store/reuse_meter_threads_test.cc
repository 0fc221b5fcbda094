// Lookups, puts and an operator's query at once: nothing is counted twice or lost.
#include <catch2/catch.hpp>
#include <thread>

#include "tiers/store/reuse_meter.h"

namespace kvkeep {

TEST_CASE("threads that tell the meter at once are all counted") {
  constexpr uint64_t kThreads = 4, kRequests = 3'000, kChain = 8;
  store_internal::ReuseMeter meter(uint64_t{1} << 40, MonotonicTime(0));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&meter, t] {
      std::vector<EvictionPolicy::ChainLink> chain(kChain);
      for (uint64_t i = 0; i < kRequests; ++i) {
        for (uint64_t k = 0; k < kChain; ++k) {
          chain[k].fingerprint = Fingerprint((i * kChain + k) * kThreads + t);
        }
        meter.OnRequest(chain, 1);
        for (const auto& link : chain) meter.OnStored(link.fingerprint, 4096);
        if (i % 16 == 0) meter.OnRemoved(chain[0].fingerprint);
        if (i % 256 == 0) (void)meter.snapshot(MonotonicTime(1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const ReuseSnapshot told = meter.snapshot(MonotonicTime(1));
  CHECK(told.curve.requests == kThreads * kRequests);
  CHECK(told.curve.wanted == kThreads * kRequests * kChain);
  CHECK(told.leading == kThreads * kRequests);
  CHECK(told.sampled_chunks <= store_internal::ReuseMeter::kMostKeys);
  // Each is asked for once.
  CHECK(told.curve.first_stored_chunks ==
        Approx(static_cast<double>(kThreads * kRequests * kChain)).epsilon(0.05));
}

}  // namespace kvkeep
