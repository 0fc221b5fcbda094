// JSON of plain structs by one list of their fields, which serves every use: to JSON and back, as
// it goes from one process to another, and sums.
//
// A struct names them with KVKEEP_FIELDS, or has a function as that makes: it calls
// visit(name, s.field...) for each field, of one object or of several side by side.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "tools/bench/client/histogram.h"

namespace kvkeep::bench {

using Json = nlohmann::ordered_json;

// The macros below are what the library's own DEFINE_TYPE is made of, which knows no ordered_json.
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

// Numbers and histograms are added up; of words the first ones stay.
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
