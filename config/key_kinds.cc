#include "config/key_kinds.h"

#include <absl/strings/str_replace.h>

#include <functional>

namespace kvkeep::config_internal {
namespace {

// Returns the text as YAML, in quotes if a plain word would be read as something else. Checked
// texts have no control characters, so these two escapes are enough.
std::string YamlString(const std::string& text) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._:-";
  const bool plain = !text.empty() && text.back() != ':' && text.front() != '-' &&
                     text.front() != ':' && text.find_first_not_of(kPlain) == std::string::npos;
  if (plain) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

// A list whose items `parse` checks.
ConfigKey TextList(std::string path, Place<std::vector<std::string>> place, std::string limits,
                   std::string wanted,
                   std::function<absl::StatusOr<std::vector<std::string>>(absl::string_view)> parse,
                   std::string doc) {
  ConfigKey key{std::move(path), std::move(doc), std::move(limits), std::move(wanted), {}, {}};
  key.shape = ConfigShape::kList;
  key.set = [=](absl::string_view text, Config& config, size_t entry) -> absl::Status {
    KVKEEP_ASSIGN_OR_RETURN(place(config, entry), parse(text));
    return absl::OkStatus();
  };
  key.get = [=](Config& config, size_t entry) { return FormatNames(place(config, entry)); };
  return key;
}

}  // namespace

ConfigKey Size(std::string path, Place<uint64_t> place, Range<uint64_t> range, std::string doc) {
  return Ranged<uint64_t>(std::move(path), std::move(place), range, "a size", ParseSize, FormatSize,
                          std::move(doc));
}
ConfigKey Count(std::string path, Place<uint64_t> place, Range<uint64_t> range, std::string doc) {
  return Ranged<uint64_t>(std::move(path), std::move(place), range, "a count", ParseCount,
                          FormatCount, std::move(doc));
}
ConfigKey Fraction(std::string path, Place<double> place, Range<double> range, std::string doc) {
  return Ranged<double>(std::move(path), std::move(place), range, "a percentage", ParseFraction,
                        FormatFraction, std::move(doc));
}
ConfigKey Duration(std::string path, Place<std::chrono::milliseconds> place,
                   Range<std::chrono::milliseconds> range, std::string doc) {
  return Ranged<std::chrono::milliseconds>(std::move(path), std::move(place), range, "a time",
                                           ParseDuration, FormatDuration, std::move(doc));
}

ConfigKey SizeInUnits(std::string path, Place<uint64_t> place, Range<uint64_t> range, uint64_t unit,
                      std::string doc) {
  ConfigKey key = Size(std::move(path), place, range, std::move(doc));
  const std::string limits = absl::StrCat(key.limits, ", a multiple of ", FormatSize(unit));
  key.limits = limits;
  key.set = [=](absl::string_view text, Config& config, size_t entry) -> absl::Status {
    KVKEEP_ASSIGN_OR_RETURN(const uint64_t value, ParseSize(text));
    if (value < range.low || value > range.high || value % unit != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(QuoteForMessage(text), " is out of range: ", limits));
    }
    place(config, entry) = value;
    return absl::OkStatus();
  };
  return key;
}

ConfigKey Mode(std::string path, Place<uint32_t> place, std::string doc) {
  return Ranged<uint32_t>(std::move(path), std::move(place), {0, 0777}, "an octal mode", ParseMode,
                          FormatMode, std::move(doc));
}

ConfigKey Numbers(std::string path, Place<std::vector<uint32_t>> place, std::string doc) {
  ConfigKey key{std::move(path),
                std::move(doc),
                absl::StrCat("at most ", kMaxNumbers, " numbers"),
                "a list of numbers like [1000, 1001]",
                {},
                {}};
  key.shape = ConfigShape::kList;
  key.set = [=](absl::string_view text, Config& config, size_t entry) -> absl::Status {
    KVKEEP_ASSIGN_OR_RETURN(place(config, entry), ParseNumbers(text));
    return absl::OkStatus();
  };
  key.get = [=](Config& config, size_t entry) { return FormatNumbers(place(config, entry)); };
  return key;
}

ConfigKey Names(std::string path, Place<std::vector<std::string>> place, bool grants,
                std::string doc) {
  return TextList(
      std::move(path), std::move(place),
      absl::StrCat("at most ", kMaxNames, grants ? " names, each with its grant" : " names"),
      grants ? "a list like [engine.example, \"auditor.example read\"]"
             : "a list like [operator.example]",
      [grants](absl::string_view text) { return ParseNames(text, grants); }, std::move(doc));
}

ConfigKey Gpus(std::string path, Place<std::vector<std::string>> place, std::string doc) {
  return TextList(
      std::move(path), std::move(place), absl::StrCat("at most ", kMaxGpus, " UUIDs, or all"),
      "a list of GPUs' UUIDs as nvidia-smi -L shows them, [all] or []", ParseGpus, std::move(doc));
}

ConfigKey Peers(std::string path, Place<std::vector<std::string>> place, std::string doc) {
  return TextList(std::move(path), std::move(place),
                  absl::StrCat("at most ", kMaxPeers, " of NAME=HOST:PORT"),
                  "a list like [node-b.example=10.0.0.2:9400]", ParsePeers, std::move(doc));
}

ConfigKey Paths(std::string path, Place<std::vector<std::string>> place, size_t most,
                std::string doc) {
  return TextList(
      std::move(path), std::move(place), absl::StrCat("at most ", most, " absolute paths"),
      "a list like [/etc/kvkeep/key-of-before]",
      [most](absl::string_view text) { return ParsePaths(text, most); }, std::move(doc));
}

ConfigKey Bool(std::string path, Place<bool> place, std::string doc) {
  ConfigKey key{std::move(path), std::move(doc), "true or false", "true or false", {}, {}};
  key.set = [=](absl::string_view text, Config& config, size_t entry) -> absl::Status {
    KVKEEP_ASSIGN_OR_RETURN(place(config, entry), ParseBool(text));
    return absl::OkStatus();
  };
  key.get = [=](Config& config, size_t entry) { return place(config, entry) ? "true" : "false"; };
  return key;
}

ConfigKey Text(std::string path, Place<std::string> place, const char* wanted, const char* limits,
               absl::Status (*check)(absl::string_view), Empty empty, std::string doc) {
  ConfigKey key{std::move(path), std::move(doc), limits, wanted, {}, {}};
  key.set = [=](absl::string_view text, Config& config, size_t entry) -> absl::Status {
    if (!text.empty() || empty == Empty::kRefused) KVKEEP_RETURN_IF_ERROR(check(text));
    place(config, entry) = std::string(text);
    return absl::OkStatus();
  };
  key.get = [=](Config& config, size_t entry) { return YamlString(place(config, entry)); };
  return key;
}

ConfigKey Dir(std::string path, Place<std::string> place, Empty empty, std::string doc) {
  return Text(std::move(path), std::move(place), "an absolute path",
              empty == Empty::kAllowed ? "absolute path, \"\" for none" : "absolute path",
              CheckPath, empty, std::move(doc));
}
ConfigKey Socket(std::string path, Place<std::string> place, Empty empty, std::string doc) {
  return Text(std::move(path), std::move(place), "an absolute path",
              empty == Empty::kAllowed ? "absolute path, at most 107 bytes, \"\" for off"
                                       : "absolute path, at most 107 bytes",
              CheckSocketPath, empty, std::move(doc));
}
ConfigKey Group(std::string path, Place<std::string> place, std::string doc) {
  return Text(std::move(path), std::move(place), "a group",
              "name or number, \"\" for the daemon's own", CheckGroupName, Empty::kAllowed,
              std::move(doc));
}
ConfigKey Address(std::string path, Place<std::string> place, std::string doc) {
  return Text(std::move(path), std::move(place), "an address", "host:port, \"\" for off",
              CheckAddress, Empty::kAllowed, std::move(doc));
}

ConfigKey MustSay(ConfigKey key, std::string when_missing) {
  key.when_missing = std::move(when_missing);
  return key;
}

}  // namespace kvkeep::config_internal
