#include "tiers/policy/admission_policy.h"

#include <catch2/catch.hpp>

namespace kvkeep {
namespace {

constexpr MonotonicTime kNow(0);

}  // namespace

TEST_CASE("an admission policy is made by its name, and another name makes none") {
  for (const std::string& name : AdmissionPolicyNames()) {
    const auto policy = MakeAdmissionPolicy(name, {.bytes_per_second = 1});
    REQUIRE(policy != nullptr);
    CHECK(std::string(policy->name()) == name);
  }
  CHECK(MakeAdmissionPolicy("none", {}) == nullptr);
}

TEST_CASE("second_use admits a chunk when it is offered again, as long as it is remembered") {
  const auto policy = MakeAdmissionPolicy("second_use", {.remembered_chunks = 2});
  const auto admit = [&policy](uint64_t chunk) {
    return policy->Admit(Fingerprint(chunk), 1, kNow);
  };
  CHECK_FALSE(admit(1));
  CHECK(admit(1));
  CHECK_FALSE(admit(1));  // gone from G3 since: it begins anew
  CHECK_FALSE(admit(2));
  CHECK_FALSE(admit(3));  // 1 is forgotten
  CHECK(admit(2));
  CHECK(admit(3));
  CHECK_FALSE(admit(1));
}

TEST_CASE("write_budget saves an hour up, lets one chunk make a debt, and has it paid off") {
  const auto policy = MakeAdmissionPolicy("write_budget", {.bytes_per_second = 2});
  const auto admit = [&policy](uint64_t bytes, MonotonicTime now) {
    return policy->Admit(Fingerprint(1), bytes, now);
  };
  CHECK(admit(7'199, kNow));
  CHECK(admit(101, kNow));  // 1 byte was left
  CHECK_FALSE(admit(1, kNow + std::chrono::seconds(50)));
  CHECK(admit(1, kNow + std::chrono::seconds(51)));
  CHECK(admit(10'000, kNow + std::chrono::hours(24)));  // no more than an hour's is saved
  CHECK_FALSE(admit(1, kNow + std::chrono::hours(24) + std::chrono::seconds(1'400)));
  CHECK(admit(1, kNow + std::chrono::hours(24) + std::chrono::seconds(1'401)));
}

TEST_CASE("what had to be written is charged to the budget") {
  const auto policy = MakeAdmissionPolicy("write_budget", {.bytes_per_second = 2});
  policy->OnWritten(8'000, kNow);
  CHECK_FALSE(policy->Admit(Fingerprint(1), 1, kNow + std::chrono::seconds(400)));
  CHECK(policy->Admit(Fingerprint(1), 1, kNow + std::chrono::seconds(401)));
}

TEST_CASE("a drive's endurance is a rate") {
  // 3,650 TB in ten years: about one a day.
  CHECK(EnduranceBytesPerSecond(3'652.5, 10) == Approx(1e12 / 86'400));
}

}  // namespace kvkeep
