// Results of loading a file's text, for tests.
#pragma once

#include <absl/strings/str_join.h>
#include <absl/strings/string_view.h>

#include <catch2/catch.hpp>
#include <string>

#include "config/config.h"

namespace kvkeep {

// Returns a line for each error; empty if there is none.
inline std::string ErrorsOf(absl::string_view text) {
  const LoadResult result = LoadConfig(text, "kv.yaml");
  CHECK(result.config.has_value() == result.errors.empty());
  return absl::StrJoin(result.errors, "\n");
}

inline Config Good(absl::string_view text) {
  const LoadResult result = LoadConfig(text, "kv.yaml");
  INFO(absl::StrJoin(result.errors, "\n"));
  REQUIRE(result.config.has_value());
  return *result.config;
}

}  // namespace kvkeep
