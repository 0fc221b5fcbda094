// config/REFERENCE.md is what the schema says.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "config/effective.h"
#include "config/schema.h"

namespace kvkeep {

TEST_CASE("the reference page is not stale") {
  std::ifstream file(KVKEEP_CONFIG_REFERENCE);
  std::stringstream page;
  page << file.rdbuf();
  INFO("run: kvkeepd --print-config-reference > config/REFERENCE.md");
  CHECK(page.str() == PrintConfigReference());
}

TEST_CASE("the reference has a row for each key, with its default, its limits and its doc") {
  const std::string page = PrintConfigReference();
  for (const ConfigKey& key : ConfigKeys()) {
    INFO(key.path);
    CHECK(absl::StrContains(page, absl::StrCat("\n| `", key.path, "` | ")));
    CHECK(absl::StrContains(page, key.doc));
  }
  CHECK(absl::StrContains(page,
                          "| `log.level` | `info` | one of trace, debug, info, warn, error | "
                          "live | The least severe events that are logged. |"));
  CHECK(absl::StrContains(page, "| `tenants[].name` | required | 1 to 32 of a-z, 0-9 and - |"));
}

}  // namespace kvkeep
