// Converts plain structs to JSON and back, and adds them up, by one list of their fields.
//
// A struct lists its fields with KVKEEP_FIELDS, or has a function like the one that the macro
// makes: it calls visit(name, s.field...) for each field, of one object or of several side by side.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "tools/bench/client/histogram.h"

namespace kvkeep::bench {

using Json = nlohmann::ordered_json;

// The library's own DEFINE_TYPE consists of the macros below, but does not support ordered_json.
#define KVKEEP_VISIT_FIELD(field) visit(#field, s.field...);
#define KVKEEP_FIELDS(...)                                                          \
  template <typename Visit, typename... S>                                          \
  static void Fields(Visit visit, S&... s) {                                        \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(KVKEEP_VISIT_FIELD, __VA_ARGS__))      \
  }

template <typename T>
Json FieldsToJson(const T& value) {
  Json json = Json::object();
  T::Fields([&json](const char* name, const auto& field) { json[name] = field; }, value);
  return json;
}

// Reads JSON that FieldsToJson made.
template <typename T>
T FieldsFromJson(const Json& json) {
  T value;
  const auto read = [&json](const char* name, auto& field) {
    field = json.at(name).get<std::decay_t<decltype(field)>>();
  };
  T::Fields(read, value);
  return value;
}

// Adds up numbers and histograms; keeps the first non-empty string.
template <typename T>
void AddFields(const T& other, T* sum) {
  const auto add = [](const char*, auto& mine, const auto& theirs) {
    using Field = std::decay_t<decltype(mine)>;
    if constexpr (std::is_same_v<Field, LatencyHistogram>) {
      mine.Merge(theirs);
    } else if constexpr (std::is_same_v<Field, std::string>) {
      if (mine.empty()) mine = theirs;
    } else {
      mine += theirs;
    }
  };
  T::Fields(add, *sum, other);
}

}  // namespace kvkeep::bench
