#include "server/gpu/gpu_strikes.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>

namespace kvkeep {

TEST_CASE("who alone had work with the driver each time a context broke is refused after so many") {
  GpuStrikes strikes(3);
  const GpuTenant bad(1), good(2);
  for (int i = 0; i < 2; ++i) strikes.NoteBreak({bad, bad});
  CHECK(strikes.Check(bad).ok());
  CHECK(strikes.tenants_off() == 0);
  strikes.NoteBreak({bad});
  CHECK(absl::IsUnavailable(strikes.Check(bad)));
  CHECK(absl::StrContains(strikes.Check(bad).message(), "broke the context of one 3 times"));
  CHECK(strikes.Check(good).ok());
  CHECK(strikes.tenants_off() == 1);
  CHECK(strikes.MayBeBeside(bad, good));  // its cause was never in doubt
}

TEST_CASE("a break of several is nobody's strike, but they are never beside others again") {
  GpuStrikes strikes(1);
  const GpuTenant one(1), other(2), third(3), fourth(4);
  strikes.NoteBreak({one, other, one});
  CHECK(strikes.Check(one).ok());
  CHECK(strikes.Check(other).ok());
  CHECK_FALSE(strikes.MayBeBeside(one, other));
  CHECK_FALSE(strikes.MayBeBeside(third, one));
  CHECK(strikes.MayBeBeside(one, one));
  CHECK(strikes.MayBeBeside(third, fourth));
  strikes.NoteBreak({other});
  CHECK(strikes.Check(one).ok());
  CHECK(absl::IsUnavailable(strikes.Check(other)));
  strikes.NoteBreak({});
  CHECK(strikes.tenants_off() == 1);
}

}  // namespace kvkeep
