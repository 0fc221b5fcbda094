// A GetRequest that is checked: what the plan has of it, and what is refused.
#include "server/requests/get_plan.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/sim/world.h"

namespace kvkeep {
namespace {

struct Asker {
  Asker() : world(WorldOptions{}) {
    world.Start();
    session = *world.store().OpenSession({.client_name = "asker"});
    ns = *world.store().OpenNamespace(session,
                                      {.model = "asker", .tokens_per_chunk = 16, .parts = 2});
    request.set_namespace_digest(std::string(ns.view()));
    request.set_keys(std::string(2 * ChunkKey::kSize, 'k'));
  }
  absl::StatusOr<GetPlan> Plan() { return ToGetPlan(world.store(), session, request); }
  bool Refused(const char* field) {
    const absl::Status status = Plan().status();
    return absl::IsInvalidArgument(status) && absl::StrContains(status.message(), field);
  }

  World world;
  SessionToken session;
  NamespaceDigest ns;
  v1::GetRequest request;
};

}  // namespace

TEST_CASE("a plan has what its request has, and all parts when it names none") {
  Asker asker;
  asker.request.set_lease_id(5);
  asker.request.set_first_piece(3);
  asker.request.set_pieces(4);
  asker.request.set_metadata(true);
  asker.request.set_transient(true);
  asker.request.set_remote_wait_us(6);
  const absl::StatusOr<GetPlan> plan = asker.Plan();
  REQUIRE(plan.ok());
  CHECK(plan->session == asker.session);
  CHECK(plan->tenant == TenantId(0));
  CHECK(plan->chunks.ns == asker.ns);
  CHECK(plan->chunks.chunks() == 4);
  CHECK(plan->lease == LeaseId(5));
  CHECK(plan->first_piece == 3);
  CHECK(plan->pieces == 4);
  CHECK(plan->metadata);
  CHECK(plan->transient);
  CHECK(plan->beyond.asks());
}

TEST_CASE("a request that cannot be meant is refused by the name of its field") {
  Asker asker;
  asker.request.set_remote_wait_us(10'000'001);
  CHECK(asker.Refused("remote_wait_us"));
  asker.request.clear_remote_wait_us();
  asker.request.set_keys("k");
  CHECK(asker.Refused("keys"));
  asker.request.set_namespace_digest("n");
  CHECK(asker.Refused("namespace_digest"));
  asker.world.store().CloseSession(asker.session);
  asker.request.set_namespace_digest(std::string(asker.ns.view()));
  CHECK(absl::IsFailedPrecondition(asker.Plan().status()));
}

}  // namespace kvkeep
