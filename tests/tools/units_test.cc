#include "tools/kvkeep/units.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/tools/environment.h"
#include "tiers/base/units.h"

namespace kvkeep::tools {

TEST_CASE("sizes are whole bytes in powers of 1024, anything else is refused with an example") {
  CHECK(*ParseSize("1") == 1);
  CHECK(*ParseSize("4097B") == 4097);
  CHECK(*ParseSize("256KiB") == 256 * kKiB);
  CHECK(*ParseSize("1.5MiB") == 1536 * kKiB);
  CHECK(*ParseSize("2TiB") == 2 * kTiB);
  for (const char* bad :
       {"", "KiB", "1KB", "1 KiB", "-1", "1.3B", "1e3", "0x10", "1.2.3KiB", "99999999TiB"}) {
    CAPTURE(bad);
    CHECK_FALSE(ParseSize(bad).ok());
  }
}

TEST_CASE("a mix of chunk sizes keeps its order and each size within one chunk's bounds") {
  CHECK(*ParseChunkSizes("256KiB,2MiB,33MiB,4097") ==
        std::vector<uint64_t>{256 * kKiB, 2 * kMiB, 33 * kMiB, 4097});
  for (const char* bad : {"", "1KiB,", "0", "257MiB", "1KiB;2KiB"}) {
    CAPTURE(bad);
    CHECK_FALSE(ParseChunkSizes(bad).ok());
  }
}

TEST_CASE("durations have a unit or are seconds") {
  using std::chrono::milliseconds;
  CHECK(*ParseDuration("5s") == milliseconds(5'000));
  CHECK(*ParseDuration("500ms") == milliseconds(500));
  CHECK(*ParseDuration("2m") == milliseconds(120'000));
  CHECK(*ParseDuration("0.5") == milliseconds(500));
  CHECK(*ParseDuration("36h") == std::chrono::hours(36));
  CHECK(*ParseDuration("7d") == std::chrono::hours(7 * 24));
  for (const char* bad : {"", "0", "5 s", "1w", "-1s", "367d"}) {
    CHECK_FALSE(ParseDuration(bad).ok());
  }
}

TEST_CASE("64 hexadecimal digits are a key, other text is hashed to one") {
  const std::string hex(64, 'a');
  CHECK(ParseKey(hex).ToHex() == hex);
  // SHA-256 of "abc", from its standard.
  CHECK(ParseKey("abc").ToHex() ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(ParseKey(std::string(64, 'z')) == Sha256Key(std::string(64, 'z')));
}

TEST_CASE("the default socket is the environment's, else the user's own") {
  ScopedEnvironment endpoint("KVKEEP_TEST_ENDPOINT", "unix:///x.sock");
  ScopedEnvironment state("XDG_STATE_HOME", "/state");
  CHECK(DefaultSocket("KVKEEP_TEST_ENDPOINT", "no-such.sock") == "unix:///x.sock");
  CHECK(DefaultSocket("KVKEEP_TEST_NONE", "no-such.sock") == "unix:///state/kvkeep/no-such.sock");
  ScopedEnvironment no_state("XDG_STATE_HOME", nullptr);
  ScopedEnvironment home("HOME", "/h");
  CHECK(DefaultSocket("KVKEEP_TEST_NONE", "no-such.sock") ==
        "unix:///h/.local/state/kvkeep/no-such.sock");
  CHECK(DefaultSocket("KVKEEP_TEST_NONE", "null", "/dev") == "unix:///dev/null");
  ScopedEnvironment admin("KVKEEP_ADMIN", "unix:///a.sock");
  CHECK(DefaultAdminSocket() == "unix:///a.sock");
}

}  // namespace kvkeep::tools
