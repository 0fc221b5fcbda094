#include "tiers/store/remote_writes.h"

#include <catch2/catch.hpp>

#include "tests/sim/payload.h"
#include "tiers/store/remote_tier.h"

namespace kvkeep::store_internal {

TEST_CASE("a tenant has half of the recalls that may be under way, another one of what is left") {
  RemoteTier::Recalls recalls;
  const auto begin = [&recalls](uint32_t tenant) {
    uint32_t begun = 0;
    for (; recalls.May(TenantId(tenant)); ++begun) recalls.Begin(TenantId(tenant));
    return begun;
  };
  CHECK(begin(0) == RemoteTier::kMostRecalls / 2);
  CHECK(begin(1) == RemoteTier::kMostRecalls / 4);
  CHECK(begin(0) == 0);
  recalls.End(TenantId(1));
  CHECK(begin(0) == 0);
  CHECK(begin(1) == 1);
  CHECK(begin(2) > 0);
}

TEST_CASE("no child is written beyond the node when its parent was not") {
  RemoteWrites writes;
  const auto named = [](uint64_t name) {
    return ChunkId{NamespaceDigest(), MakeKey(name), PartId(0)};
  };
  const auto offer = [&](uint64_t name, std::optional<uint64_t> parent) {
    RemoteWrites::Offered offered{.id = named(name), .tenant = TenantId(0), .bytes = 4096};
    if (parent.has_value()) offered.parent = named(*parent);
    return writes.Offer(offered);
  };
  uint64_t name = 0;
  while (offer(name, std::nullopt)) ++name;
  CHECK(name == RemoteWrites::kMostQueued / 2);
  for (int i = 0; i < 10; ++i) writes.Pop();
  CHECK_FALSE(offer(name + 1, name));      // whose parent was dropped
  CHECK_FALSE(offer(name + 2, name + 1));  // and whose children
  CHECK(offer(9999, 3));
  CHECK(offer(name, std::nullopt));  // once it is written, they are
  CHECK(offer(name + 1, name));
}

TEST_CASE("tenants take turns to write beyond the node, and each finds room in the queue") {
  RemoteWrites writes;
  uint64_t name = 0;
  const auto offer = [&](uint32_t tenant) {
    return writes.Offer({.id = {NamespaceDigest(), MakeKey(++name), PartId(0)},
                         .tenant = TenantId(tenant),
                         .bytes = 4 * kMiB});
  };
  while (offer(0)) {
  }
  for (int i = 0; i < 10; ++i) CHECK(offer(1));
  int of_one = 0;
  for (int i = 0; i < 24; ++i) {
    of_one += writes.next().tenant == TenantId(1);
    writes.Pop();
  }
  CHECK(of_one == 10);
}

}  // namespace kvkeep::store_internal
