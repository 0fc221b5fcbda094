#include "config/values.h"

#include <absl/functional/function_ref.h>
#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <arpa/inet.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

struct Unit {
  const char* name;
  uint64_t factor;
};

// The order of each table is the order in which a unit is chosen for printing.
constexpr Unit kSizeUnits[] = {
    {"TiB", kTiB},         {"GiB", kGiB},     {"MiB", kMiB},
    {"KiB", kKiB},         {"B", 1},          {"TB", 1'000'000'000'000},
    {"GB", 1'000'000'000}, {"MB", 1'000'000}, {"KB", 1000},
    {"kB", 1000},
};
constexpr Unit kCountUnits[] = {
    {"G", 1'000'000'000}, {"M", 1'000'000}, {"k", 1000}, {"Gi", kGiB}, {"Mi", kMiB}, {"Ki", kKiB},
};
constexpr Unit kTimeUnits[] = {{"d", 86'400'000}, {"h", 3'600'000},
                               {"m", 60'000}, {"s", 1000}, {"ms", 1}};

absl::Status Wrong(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(QuoteForMessage(text), " ", why));
}

struct NumberAndUnit {
  uint64_t number = 0;
  absl::string_view unit;  // empty: none
};

// Splits "64GiB" or "64 GiB". Returns none without a whole number in front, or beyond 64 bits.
std::optional<NumberAndUnit> Split(absl::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  NumberAndUnit result;
  if (digits == 0 || !absl::SimpleAtoi(text.substr(0, digits), &result.number)) return std::nullopt;
  result.unit = absl::StripLeadingAsciiWhitespace(text.substr(digits));
  return result;
}

absl::StatusOr<uint64_t> Multiply(absl::string_view text, uint64_t number,
                                  std::span<const Unit> units, absl::string_view unit,
                                  absl::string_view wanted) {
  for (const Unit& known : units) {
    if (unit != known.name) continue;
    uint64_t value = 0;
    if (__builtin_mul_overflow(number, known.factor, &value)) {
      return Wrong(text, "is too large for 64 bits");
    }
    return value;
  }
  return Wrong(text, wanted);
}

std::string FormatIn(uint64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value >= unit.factor && value % unit.factor == 0) {
      return absl::StrCat(value / unit.factor, unit.name);
    }
  }
  return absl::StrCat(value);
}

}  // namespace

std::string QuoteForMessage(absl::string_view text) {
  constexpr size_t kShown = 80;
  const bool cut = text.size() > kShown;
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(text.substr(0, kShown)), cut ? "...'" : "'");
}

absl::StatusOr<uint64_t> ParseSize(absl::string_view text) {
  constexpr char kWanted[] =
      "is not a size: write a whole number with KiB, MiB, GiB, TiB (or decimal KB, MB, GB, TB), "
      "like 64GiB";
  const std::optional<NumberAndUnit> parts = Split(text);
  if (!parts) return Wrong(text, kWanted);
  if (parts->unit.empty()) return parts->number;
  return Multiply(text, parts->number, kSizeUnits, parts->unit, kWanted);
}

std::string FormatSize(uint64_t bytes) { return FormatIn(bytes, std::span(kSizeUnits).first(4)); }

absl::StatusOr<uint64_t> ParseCount(absl::string_view text) {
  constexpr char kWanted[] =
      "is not a count: write a whole number, also with k, M, G (decimal) or Ki, Mi, Gi, like 4M";
  const std::optional<NumberAndUnit> parts = Split(text);
  if (!parts) return Wrong(text, kWanted);
  if (parts->unit.empty()) return parts->number;
  return Multiply(text, parts->number, kCountUnits, parts->unit, kWanted);
}

std::string FormatCount(uint64_t count) { return FormatIn(count, std::span(kCountUnits).first(3)); }

absl::StatusOr<double> ParseFraction(absl::string_view text) {
  constexpr char kWanted[] = "is not a percentage: write it with a %, like 25%";
  absl::string_view number = text;
  double percent = 0;
  if (!absl::ConsumeSuffix(&number, "%") || number.empty() ||
      number.find_first_not_of("0123456789.") != absl::string_view::npos ||
      !absl::SimpleAtod(number, &percent) || !std::isfinite(percent)) {
    return Wrong(text, kWanted);
  }
  return percent / 100;
}

std::string FormatFraction(double fraction) { return absl::StrFormat("%.10g%%", fraction * 100); }

absl::StatusOr<std::chrono::milliseconds> ParseDuration(absl::string_view text) {
  constexpr char kWanted[] = "is not a time: write a whole number with ms, s, m, h or d, like 15s";
  const std::optional<NumberAndUnit> parts = Split(text);
  if (!parts) return Wrong(text, kWanted);
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t milliseconds,
                          Multiply(text, parts->number, kTimeUnits, parts->unit, kWanted));
  if (milliseconds > INT64_MAX) return Wrong(text, "is too large for 64 bits");
  return std::chrono::milliseconds(static_cast<int64_t>(milliseconds));
}

std::string FormatDuration(std::chrono::milliseconds duration) {
  if (duration.count() == 0) return "0s";
  return FormatIn(static_cast<uint64_t>(duration.count()), kTimeUnits);
}

absl::StatusOr<uint32_t> ParseMode(absl::string_view text) {
  if (text.size() < 3 || text.size() > 4 ||
      text.find_first_not_of("01234567") != absl::string_view::npos) {
    return Wrong(text, "is not an octal mode: write three or four octal digits, like 0660");
  }
  uint32_t mode = 0;
  for (const char digit : text) mode = mode * 8 + static_cast<uint32_t>(digit - '0');
  return mode;
}

std::string FormatMode(uint32_t mode) { return absl::StrFormat("%04o", mode); }

absl::StatusOr<std::vector<uint32_t>> ParseNumbers(absl::string_view text) {
  absl::string_view inner = text;
  if (!absl::ConsumePrefix(&inner, "[") || !absl::ConsumeSuffix(&inner, "]")) {
    return Wrong(text, "is not a list of numbers like [1000, 1001]");
  }
  std::vector<uint32_t> numbers;
  if (inner.empty()) return numbers;
  for (const absl::string_view piece : absl::StrSplit(inner, ',')) {
    const absl::string_view item = absl::StripAsciiWhitespace(piece);
    uint32_t number = 0;
    if (item.empty() || item.find_first_not_of("0123456789") != absl::string_view::npos ||
        !absl::SimpleAtoi(item, &number)) {
      return Wrong(item, "is not a whole number of 32 bits");
    }
    if (std::find(numbers.begin(), numbers.end(), number) != numbers.end()) {
      return Wrong(item, "is there twice");
    }
    numbers.push_back(number);
    if (numbers.size() > kMaxNumbers) {
      return Wrong(item, absl::StrCat("is one too many: at most ", kMaxNumbers, " numbers"));
    }
  }
  return numbers;
}

std::string FormatNumbers(const std::vector<uint32_t>& numbers) {
  return absl::StrCat("[", absl::StrJoin(numbers, ", "), "]");
}

namespace {

// Returns whether `text` has only ASCII letters, ASCII digits and characters of `these`.
bool IsAlphanumericOr(absl::string_view these, absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [these](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(these, c);
  });
}

absl::Status CheckName(absl::string_view item, bool grants) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(item, absl::MaxSplits(' ', 1));
  const auto [name, grant] = parts;
  // Characters that YAML reads as they stand.
  const bool letters_ok = IsAlphanumericOr(".-_:/~%+", name);
  if (name.empty() || name.size() > kMaxNameBytes || !letters_ok ||
      !absl::ascii_isalnum(static_cast<unsigned char>(name.front())) || name.back() == ':') {
    return Wrong(item,
                 "is not a name of a certificate: write a DNS or URI name of it, at most 255 "
                 "of letters, digits and .-_:/~%+");
  }
  if (grant.empty() && item.size() == name.size()) return absl::OkStatus();
  if (!grants) return Wrong(item, "is more than a name");
  if (grant == "read" || grant == "write") return absl::OkStatus();
  return Wrong(item, "is not a name with its grant: write NAME, NAME read or NAME write");
}

// Checks a UUID in the form of nvidia-smi -L.
absl::Status CheckGpu(absl::string_view item) {
  constexpr char kWanted[] =
      "is not a GPU's UUID: write it as nvidia-smi -L does, like "
      "GPU-b21c0c3e-0000-4000-8000-0123456789ab, or all";
  constexpr absl::string_view kForm = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (item == "all") return absl::OkStatus();
  absl::string_view uuid = item;
  const bool known = absl::ConsumePrefix(&uuid, "GPU-") || absl::ConsumePrefix(&uuid, "MIG-");
  bool right = known && uuid.size() == kForm.size();
  for (size_t i = 0; right && i < uuid.size(); ++i) {
    const bool digit = absl::ascii_isdigit(static_cast<unsigned char>(uuid[i])) ||
                       (uuid[i] >= 'a' && uuid[i] <= 'f');
    right = kForm[i] == 'x' ? digit : uuid[i] == '-';
  }
  return right ? absl::OkStatus() : Wrong(item, kWanted);
}

}  // namespace

namespace {

// Parses a list without duplicates; `what` names its items in messages.
absl::StatusOr<std::vector<std::string>> ParseList(
    absl::string_view text, const char* what, const char* example, size_t most,
    absl::FunctionRef<absl::Status(absl::string_view)> check) {
  absl::string_view inner = text;
  if (!absl::ConsumePrefix(&inner, "[") || !absl::ConsumeSuffix(&inner, "]")) {
    return Wrong(text, absl::StrCat("is not a list of ", what, " like ", example));
  }
  std::vector<std::string> items;
  if (inner.empty()) return items;
  for (const absl::string_view piece : absl::StrSplit(inner, ',')) {
    const absl::string_view item = absl::StripAsciiWhitespace(piece);
    KVKEEP_RETURN_IF_ERROR(check(item));
    if (std::find(items.begin(), items.end(), item) != items.end()) {
      return Wrong(item, "is there twice");
    }
    items.emplace_back(item);
    if (items.size() > most) {
      return Wrong(item, absl::StrCat("is one too many: at most ", most, " ", what));
    }
  }
  return items;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseNames(absl::string_view text, bool grants) {
  return ParseList(text, "names", "[engine.example]", kMaxNames,
                   [grants](absl::string_view item) { return CheckName(item, grants); });
}

absl::StatusOr<std::vector<std::string>> ParsePaths(absl::string_view text, size_t most) {
  return ParseList(text, "paths", "[/etc/kvkeep/key-of-before]", most, CheckPath);
}

absl::StatusOr<std::vector<std::string>> ParsePeers(absl::string_view text) {
  return ParseList(text, "peers", "[node-b.example=10.0.0.2:9400]", kMaxPeers, CheckPeer);
}

absl::StatusOr<std::vector<std::string>> ParseGpus(absl::string_view text) {
  KVKEEP_ASSIGN_OR_RETURN(std::vector<std::string> gpus,
                          ParseList(text, "GPUs", "[GPU-b21c...]", kMaxGpus, CheckGpu));
  const bool all = std::find(gpus.begin(), gpus.end(), "all") != gpus.end();
  if (all && gpus.size() > 1) return Wrong(text, "names all, and others beside it");
  return gpus;
}

std::string FormatNames(const std::vector<std::string>& names) {
  return absl::StrCat("[", absl::StrJoin(names, ", "), "]");
}

bool IsLoopbackAddress(absl::string_view address) {
  std::string host(address.substr(0, address.rfind(':')));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::StatusOr<bool> ParseBool(absl::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return Wrong(text, "is not true or false");
}

absl::Status CheckAddress(absl::string_view text) {
  constexpr char kWanted[] =
      "is not an address: write host:port, like 127.0.0.1:9464 or [::1]:9464";
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return Wrong(text, kWanted);
  absl::string_view host = text.substr(0, colon);
  const absl::string_view port = text.substr(colon + 1);
  absl::string_view host_characters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) return Wrong(text, kWanted);
    host_characters = "abcdefABCDEF0123456789:.";
  }
  uint32_t number = 0;
  const bool port_ok = !port.empty() && port.size() <= 5 &&
                       port.find_first_not_of("0123456789") == absl::string_view::npos &&
                       absl::SimpleAtoi(port, &number) && number <= 65535;
  const bool host_ok = !host.empty() && host.size() <= 253 &&
                       host.find_first_not_of(host_characters) == absl::string_view::npos;
  return host_ok && port_ok ? absl::OkStatus() : Wrong(text, kWanted);
}

absl::Status CheckPath(absl::string_view text) {
  if (text.empty() || text[0] != '/') return Wrong(text, "is not an absolute path");
  if (text.size() > kMaxPathBytes) {
    return Wrong(
        text, absl::StrFormat("has %d bytes, a path has at most %d", text.size(), kMaxPathBytes));
  }
  for (const char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      return Wrong(text, "has a control character in it");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTenantName(absl::string_view text) {
  const bool letters_ok =
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == absl::string_view::npos;
  if (text == "default") return Wrong(text, "is what the default tenant is called");
  if (letters_ok && !text.empty() && text.size() <= 32) return absl::OkStatus();
  return Wrong(text, "is not a tenant's name: write 1 to 32 of a-z, 0-9 and -");
}

absl::Status CheckZmqEndpoint(absl::string_view text) {
  if (absl::ConsumePrefix(&text, "tcp://")) return CheckAddress(text);
  if (absl::ConsumePrefix(&text, "ipc://")) return CheckSocketPath(text);
  return Wrong(text, "is not an endpoint: write tcp://host:port or ipc:///path");
}

absl::Status CheckG4Url(absl::string_view text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "file://")) return CheckPath(rest);
  const bool web = absl::ConsumePrefix(&rest, "http://") || absl::ConsumePrefix(&rest, "https://");
  const size_t slash = rest.find('/');
  const absl::string_view bucket =
      slash == absl::string_view::npos ? absl::string_view() : rest.substr(slash + 1);
  const bool plain = rest.find_first_of(" ?#@") == absl::string_view::npos;
  const bool named = bucket.size() >= 3 && bucket.size() <= 63;  // S3's own rule
  if (web && slash > 0 && named && bucket.find('/') == absl::string_view::npos && plain &&
      text.size() <= kMaxPathBytes) {
    return absl::OkStatus();
  }
  return Wrong(text, "is not where G4 is: write https://host/bucket, http://host:port/bucket or "
                     "file:///directory; a bucket's name has 3 to 63 characters");
}

G4Place SplitG4Url(absl::string_view url) {
  if (absl::ConsumePrefix(&url, "file://")) return {.directory = std::string(url)};
  const size_t slash = url.rfind('/');
  return {.endpoint = std::string(url.substr(0, slash)),
          .bucket = std::string(url.substr(slash + 1))};
}

absl::Status CheckG4Prefix(absl::string_view text) {
  const bool letters_ok = IsAlphanumericOr("._-/", text);
  const bool steps = absl::StrContains(text, "..") || absl::StrContains(text, "//");
  if (letters_ok && !steps && text.size() <= 256 && (text.empty() || text[0] != '/')) {
    return absl::OkStatus();
  }
  return Wrong(text, "is not a prefix: write at most 256 of a-z, A-Z, 0-9, '.', '_', '-' and '/', "
                     "without '..', '//' or a '/' in front");
}

absl::Status CheckProxy(absl::string_view text) {
  absl::string_view address = text;
  if (absl::ConsumePrefix(&address, "http://") && CheckAddress(address).ok()) {
    return absl::OkStatus();
  }
  return Wrong(text, "is not a proxy: write http://host:port, without a user or a path");
}

absl::Status CheckCommand(absl::string_view text) {
  const bool absolute = absl::StartsWith(text, "/") || absl::StartsWith(text, "\"/");
  const bool controls = std::any_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t';
  });
  const bool ends = std::count(text.begin(), text.end(), '"') % 2 == 0;
  if (absolute && ends && !controls && text.size() <= kMaxPathBytes) return absl::OkStatus();
  return Wrong(text, absl::StrFormat("is not a command: write at most %d characters, the absolute "
                                     "path of a program first, each '\"' with its end",
                                     kMaxPathBytes));
}

absl::Status CheckPlainName(absl::string_view text) {
  const bool letters_ok = IsAlphanumericOr("._-", text);
  if (letters_ok && !text.empty() && text.size() <= 64) return absl::OkStatus();
  return Wrong(text, "is not a name: write 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'");
}

absl::Status CheckPeer(absl::string_view text) {
  const size_t equals = text.find('='), colon = text.rfind(':');
  uint32_t port = 0;
  bool well = equals != absl::string_view::npos && colon != absl::string_view::npos &&
              equals + 1 < colon && CheckPlainName(text.substr(0, equals)).ok() &&
              absl::SimpleAtoi(text.substr(colon + 1), &port) && port >= 1 && port <= 65535;
  if (well) {
    const absl::string_view host = text.substr(equals + 1, colon - equals - 1);
    const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    well = brackets ? IsAlphanumericOr(":.%", host.substr(1, host.size() - 2))
                    : IsAlphanumericOr(".-_", host);
  }
  return well ? absl::OkStatus() : Wrong(text, "is not NAME=HOST:PORT");
}

absl::Status CheckGroupName(absl::string_view text) {
  const bool letters_ok = IsAlphanumericOr("._-", text);
  if (letters_ok && !text.empty() && text.size() <= 32 && text[0] != '-') return absl::OkStatus();
  return Wrong(text, "is not a group's name or number");
}

absl::Status CheckSocketPath(absl::string_view text) {
  KVKEEP_RETURN_IF_ERROR(CheckPath(text));
  if (text.size() > kMaxSocketPathBytes) {
    return Wrong(text, absl::StrFormat("has %d bytes, a Unix socket's path has at most %d",
                                       text.size(), kMaxSocketPathBytes));
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
