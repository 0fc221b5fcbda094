// A transport keeps its namespaces over sessions.

#include "client/transport/declared_namespaces.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

namespace kvkeep::client {
namespace {

NamespaceSpec Named(const std::string& model) { return {.model = model, .tokens_per_chunk = 16}; }

NamespaceDigest DigestOf(uint8_t byte) {
  NamespaceDigest digest;
  digest.bytes[0] = byte;
  return digest;
}

}  // namespace

TEST_CASE("the same spec is one namespace, another one is new") {
  DeclaredNamespaces all;
  const auto a = all.Add(Named("a"));
  REQUIRE(a.ok());
  CHECK(*all.Add(Named("a")) == *a);
  CHECK(*all.Add(Named("b")) != *a);
  CHECK((*a)->spec().model == "a");
}

TEST_CASE("a namespace is undeclared in each session until the daemon has answered there") {
  DeclaredNamespaces all;
  const DeclaredNamespaces::Ptr ns = *all.Add(Named("a"));
  CHECK(all.Undeclared(1) == std::vector{ns});
  CHECK(absl::IsUnavailable(ns->DigestIn(1).status()));
  CHECK(ns->digest().is_zero());

  CHECK(ns->TakeAnswer(1, DigestOf(7)).ok());
  CHECK(all.Undeclared(1).empty());
  CHECK(*ns->DigestIn(1) == DigestOf(7));
  CHECK(all.Undeclared(2) == std::vector{ns});
  CHECK(absl::IsUnavailable(ns->DigestIn(2).status()));
  CHECK(ns->digest() == DigestOf(7));  // for people, also between sessions
}

TEST_CASE("a refusal is an answer, kept until the daemon takes the namespace") {
  DeclaredNamespaces all;
  const DeclaredNamespaces::Ptr ns = *all.Add(Named("a"));
  for (const absl::Status& refusal :
       {absl::InvalidArgumentError("model"), absl::ResourceExhaustedError("too many"),
        absl::PermissionDeniedError("tenant")}) {
    CHECK(ns->TakeAnswer(3, refusal).ok());
    CHECK(all.Undeclared(3).empty());
    CHECK(ns->refusal() == refusal);
    CHECK(ns->DigestIn(3).status() == refusal);
  }
  CHECK(ns->TakeAnswer(4, DigestOf(1)).ok());
  CHECK(ns->refusal().ok());
  CHECK(*ns->DigestIn(4) == DigestOf(1));
}

TEST_CASE("an error that says nothing of the namespace changes nothing") {
  DeclaredNamespaces all;
  const DeclaredNamespaces::Ptr ns = *all.Add(Named("a"));
  REQUIRE(ns->TakeAnswer(1, DigestOf(7)).ok());
  for (const absl::Status& error : {absl::UnavailableError("lost"), absl::InternalError("digest"),
                                    absl::DeadlineExceededError("late")}) {
    CHECK(ns->TakeAnswer(2, error) == error);
    CHECK(all.Undeclared(2) == std::vector{ns});
    CHECK(*ns->DigestIn(1) == DigestOf(7));
  }
}

TEST_CASE("a namespace that was removed is declared no more, and makes room for another one") {
  DeclaredNamespaces all;
  const DeclaredNamespaces::Ptr first = *all.Add(Named("0"));
  for (size_t i = 1; i < DeclaredNamespaces::kMost; ++i) {
    REQUIRE(all.Add(Named(absl::StrCat(i))).ok());
  }
  CHECK(absl::IsResourceExhausted(all.Add(Named("more")).status()));
  CHECK(all.Add(Named("5")).ok());  // known
  all.Remove(first);
  CHECK(all.Undeclared(1).size() == DeclaredNamespaces::kMost - 1);
  CHECK(all.Add(Named("more")).ok());
}

}  // namespace kvkeep::client
