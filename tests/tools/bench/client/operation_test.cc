#include "tools/bench/client/operation.h"

#include <catch2/catch.hpp>
#include <set>

namespace kvkeep::bench {

TEST_CASE("no client begins where another one is") {
  constexpr uint64_t kKeys = 1000;
  for (const uint32_t clients : {1, 2, 3, 4, 8}) {
    std::set<uint64_t> got;  // by all of them, while each does a part
    for (uint32_t number = 0; number < clients; ++number) {
      ClientContext context;
      context.number = number;
      context.clients = clients;
      for (uint64_t i = 0; i < kKeys / clients; ++i) {
        const uint64_t first = NextFirst(&context, {.keys = kKeys});
        CHECK(first < kKeys);
        CHECK(got.insert(first).second);
      }
    }
    CHECK(got.size() == kKeys / clients * clients);
  }
}

TEST_CASE("each client goes round all batches, also when there are fewer than clients") {
  for (const uint64_t batch : {3, 40}) {
    ClientContext context;
    context.number = 3;
    context.clients = 4;
    std::set<uint64_t> got;
    for (int i = 0; i < 100; ++i) {
      const uint64_t first =
          NextFirst(&context, {.batch = static_cast<uint32_t>(batch), .keys = 100});
      CHECK(first % batch == 0);
      CHECK(first + batch <= 100);
      got.insert(first);
    }
    CHECK(got.size() == 100 / batch);
  }
}

}  // namespace kvkeep::bench
