// Learning while a store with threads of its own is used, and its end.
#include <catch2/catch.hpp>
#include <thread>

#include "tests/fakes/aliased_arena.h"
#include "tests/fakes/seeded_random.h"
#include "tests/sim/payload.h"
#include "tiers/base/check.h"
#include "tiers/base/executor.h"
#include "tiers/store/store.h"

namespace kvkeep {

TEST_CASE("a store that was drained and is quiet leaves no task of its learning behind") {
  for (int round = 0; round < 20; ++round) {
    ThreadPool copy("copy", 4);
    AliasedArena arena(BlockCount(2'048));
    SeededRandom random(static_cast<uint64_t>(round) + 1);
    StoreDeps deps{
        .clock = RealClock(), .random = &random, .arena = &arena, .copy_executor = &copy};
    auto store =
        Store::Create(
            {.g2_policy = "reuse", .max_chunks = 10'000, .max_reserved_bytes = 2'048 * kBlockBytes},
            deps)
            .value();
    const SessionToken session = store->OpenSession({.client_name = "test"}).value();
    const NamespaceDigest ns =
        store->OpenNamespace(session, {.model = "test", .tokens_per_chunk = 16}).value();
    const std::vector<PartId> parts = {PartId(0)};
    std::vector<std::thread> callers;
    for (uint64_t caller = 0; caller < 2; ++caller) {
      callers.emplace_back([&, caller] {
        for (uint64_t i = 0; i < 40; ++i) {
          std::vector<ChunkKey> keys;
          for (uint64_t k = 0; k < 400; ++k) keys.push_back(MakeKey(1'000 * (i % 7) + k + caller));
          KVKEEP_CHECK(store->Lookup(session, {.chunks = {ns, keys, parts}}).ok());
          ReserveResult put =
              store
                  ->Reserve(session, {.ns = ns, .key = keys.front(), .shape = {.payload_bytes = 1}})
                  .value();
          if (!put.reservation) continue;
          const std::byte payload{1};
          put.reservation.Append(std::span(&payload, 1));
          KVKEEP_CHECK(put.reservation.Seal({}).ok());
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    store->BeginDrain();
    while (!store->learning_is_quiet()) std::this_thread::yield();
    store.reset();  // before its executor
  }
}

}  // namespace kvkeep
