// The kinds of keys of a config: for each kind of value a function that makes a row of the table
// (schema.h) from the key's path, the place of its value in a Config, its limits and its doc.
// Used by schema.cc and g4_keys.cc only.
#pragma once

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "config/schema.h"
#include "config/values.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::config_internal {

// Returns choices whose values are their names.
inline std::vector<std::pair<std::string, std::string>> AsSaid(
    const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> choices;
  for (const std::string& name : names) choices.emplace_back(name, name);
  return choices;
}

// The place of a value in a Config.
template <typename T>
using Place = std::function<T&(Config& config, size_t entry)>;

template <typename Section, typename T>
Place<T> In(Section Config::*section, T Section::*field) {
  return [=](Config& config, size_t) -> T& { return config.*section.*field; };
}
template <typename Section, typename T>
Place<T> InAccess(Section Config::*section, T AccessConfig::*field) {
  return [=](Config& config, size_t) -> T& { return (config.*section).access.*field; };
}
template <typename T>
Place<T> InTenant(T TenantConfig::*field) {
  return [=](Config& config, size_t entry) -> T& {
    KVKEEP_CHECK(entry < config.tenants.size());
    return config.tenants[entry].*field;
  };
}
template <typename T>
Place<T> InTenantAccess(T AccessConfig::*field) {
  return [=](Config& config, size_t entry) -> T& {
    KVKEEP_CHECK(entry < config.tenants.size());
    return config.tenants[entry].access.*field;
  };
}
template <typename Section>
Place<uint64_t> InLimits(Section Config::*section, uint64_t TenantLimitsConfig::*field) {
  return [=](Config& config, size_t) -> uint64_t& { return (config.*section).limits.*field; };
}
inline Place<uint64_t> InTenantLimits(uint64_t TenantLimitsConfig::*field) {
  return [=](Config& config, size_t entry) -> uint64_t& {
    KVKEEP_CHECK(entry < config.tenants.size());
    return config.tenants[entry].limits.*field;
  };
}
template <typename T>
Place<T> InG3Path(T G3PathConfig::*field) {
  return [=](Config& config, size_t entry) -> T& {
    KVKEEP_CHECK(entry < config.g3.paths.size());
    return config.g3.paths[entry].*field;
  };
}

template <typename T>
struct Range {
  T low, high;
};

// Keys whose values have an order: parsed, checked against a range, formatted.
template <typename T>
ConfigKey Ranged(std::string path, Place<T> place, Range<T> range, const char* wanted,
                 absl::StatusOr<T> (*parse)(absl::string_view), std::string (*format)(T),
                 std::string doc) {
  const std::string limits = absl::StrCat(format(range.low), " to ", format(range.high));
  ConfigKey key{std::move(path), std::move(doc), limits, wanted, {}, {}};
  key.set = [=](absl::string_view text, Config& config, size_t entry) -> absl::Status {
    KVKEEP_ASSIGN_OR_RETURN(const T value, parse(text));
    if (value < range.low || value > range.high) {
      return absl::InvalidArgumentError(
          absl::StrCat(QuoteForMessage(text), " is out of range: ", limits));
    }
    place(config, entry) = value;
    return absl::OkStatus();
  };
  key.get = [=](Config& config, size_t entry) { return format(place(config, entry)); };
  return key;
}

// One of `choices`, each a word and the value it stands for.
template <typename T>
ConfigKey Choice(std::string path, Place<T> place, std::vector<std::pair<std::string, T>> choices,
                 std::string doc) {
  const std::string limits = absl::StrCat(
      "one of ", absl::StrJoin(choices, ", ", [](std::string* out, const auto& choice) {
        out->append(choice.first);
      }));
  ConfigKey key{std::move(path), std::move(doc), limits, limits, {}, {}};
  key.set = [=](absl::string_view text, Config& config, size_t entry) -> absl::Status {
    for (const auto& [word, value] : choices) {
      if (text != word) continue;
      place(config, entry) = value;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(QuoteForMessage(text), " is not ", limits));
  };
  key.get = [=](Config& config, size_t entry) -> std::string {
    for (const auto& [word, value] : choices) {
      if (place(config, entry) == value) return word;
    }
    KVKEEP_CHECK(false);  // an enumerator that the table does not know
    return "";
  };
  return key;
}

enum class Empty { kRefused, kAllowed };

ConfigKey Size(std::string path, Place<uint64_t> place, Range<uint64_t> range, std::string doc);
ConfigKey Count(std::string path, Place<uint64_t> place, Range<uint64_t> range, std::string doc);
ConfigKey Fraction(std::string path, Place<double> place, Range<double> range, std::string doc);
ConfigKey Duration(std::string path, Place<std::chrono::milliseconds> place,
                   Range<std::chrono::milliseconds> range, std::string doc);
// A size that must be a whole number of `unit`s.
ConfigKey SizeInUnits(std::string path, Place<uint64_t> place, Range<uint64_t> range, uint64_t unit,
                      std::string doc);
// Permission bits of a socket's file.
ConfigKey Mode(std::string path, Place<uint32_t> place, std::string doc);
ConfigKey Numbers(std::string path, Place<std::vector<uint32_t>> place, std::string doc);
// Names in certificates; each may end with its grant where `grants` is true.
ConfigKey Names(std::string path, Place<std::vector<std::string>> place, bool grants,
                std::string doc);
ConfigKey Gpus(std::string path, Place<std::vector<std::string>> place, std::string doc);
ConfigKey Paths(std::string path, Place<std::vector<std::string>> place, size_t most,
                std::string doc);
// NAME=HOST:PORT of each.
ConfigKey Peers(std::string path, Place<std::vector<std::string>> place, std::string doc);
ConfigKey Bool(std::string path, Place<bool> place, std::string doc);
ConfigKey Text(std::string path, Place<std::string> place, const char* wanted, const char* limits,
               absl::Status (*check)(absl::string_view), Empty empty, std::string doc);
ConfigKey Dir(std::string path, Place<std::string> place, Empty empty, std::string doc);
ConfigKey Socket(std::string path, Place<std::string> place, Empty empty, std::string doc);
ConfigKey Group(std::string path, Place<std::string> place, std::string doc);
ConfigKey Address(std::string path, Place<std::string> place, std::string doc);
ConfigKey MustSay(ConfigKey key, std::string when_missing);

}  // namespace kvkeep::config_internal
