#include "tiers/store/owners.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

constexpr TenantId kOwnerDefault(0), kOwnerA(1), kOwnerB(2);

// A reads B's chunks; no other tenant reads another's.
Owners ThreeOwners() {
  return Owners({{.name = ""}, {.name = "a"}, {.name = "b", .readers = {kOwnerA}}});
}

NamespaceDigest NamespaceOwnedBy(const std::string& tenant) {
  const NamespaceSpec spec{.model = "m", .tokens_per_chunk = 16};
  return spec.Digest(tenant);
}

}  // namespace

TEST_CASE("a namespace belongs to the tenant whose name is in its digest") {
  const Owners owners = ThreeOwners();
  CHECK(owners.OwnerOf(NamespaceOwnedBy("")) == kOwnerDefault);
  CHECK(owners.OwnerOf(NamespaceOwnedBy("a")) == kOwnerA);
  CHECK(owners.OwnerOf(NamespaceOwnedBy("b")) == kOwnerB);
}

TEST_CASE("a namespace of a tenant that is not configured belongs to nobody") {
  const Owners owners = ThreeOwners();
  CHECK(owners.OwnerOf(NamespaceOwnedBy("c")) == owners.nobody());
  CHECK(owners.nobody().value() == owners.count());
}

TEST_CASE("a tenant finds itself and those that let it read, by the names that are shown") {
  const Owners owners = ThreeOwners();
  CHECK(owners.Find(kOwnerA, "").value() == kOwnerA);
  CHECK(owners.Find(kOwnerDefault, "").value() == kOwnerDefault);
  CHECK(owners.Find(kOwnerA, "a").value() == kOwnerA);
  CHECK(owners.Find(kOwnerA, "b").value() == kOwnerB);
  CHECK(owners.Find(kOwnerDefault, "default").value() == kOwnerDefault);
}

TEST_CASE("to a tenant that may not read another, that one is as one that is not there") {
  const Owners owners = ThreeOwners();
  const absl::Status not_read = owners.Find(kOwnerB, "a").status();
  CHECK(not_read.code() == absl::StatusCode::kPermissionDenied);
  CHECK(not_read.message() == "tenant: there is no 'a' that lets this session's tenant read");
  CHECK(owners.Find(kOwnerB, "c").status().message() ==
        "tenant: there is no 'c' that lets this session's tenant read");
  CHECK(owners.Find(kOwnerA, "default").status().code() == absl::StatusCode::kPermissionDenied);
}

TEST_CASE("reading goes one way") {
  const Owners owners = ThreeOwners();
  CHECK(owners.MayRead(kOwnerA, kOwnerB));
  CHECK_FALSE(owners.MayRead(kOwnerB, kOwnerA));
  CHECK(owners.MayRead(kOwnerB, kOwnerB));
}

}  // namespace kvkeep::store_internal
