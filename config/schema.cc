#include "config/schema.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>

#include <utility>

#include "config/values.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

// Where a value lives in a Config.
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

// A size that must be a whole number of `unit`s.
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

// Permission bits of a socket's file.
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

// Names in certificates; each may end with its grant where `grants` is true.
ConfigKey Names(std::string path, Place<std::vector<std::string>> place, bool grants,
                std::string doc) {
  ConfigKey key{
      std::move(path),
      std::move(doc),
      absl::StrCat("at most ", kMaxNames, grants ? " names, each with its grant" : " names"),
      grants ? "a list like [engine.example, \"auditor.example read\"]"
             : "a list like [operator.example]",
      {},
      {}};
  key.shape = ConfigShape::kList;
  key.set = [=](absl::string_view text, Config& config, size_t entry) -> absl::Status {
    KVKEEP_ASSIGN_OR_RETURN(place(config, entry), ParseNames(text, grants));
    return absl::OkStatus();
  };
  key.get = [=](Config& config, size_t entry) { return FormatNames(place(config, entry)); };
  return key;
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

// As YAML: quoted where a plain word would be read as something else. No checked text has control
// characters, so these two escapes are enough.
std::string YamlString(const std::string& text) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._:-";
  const bool plain = !text.empty() && text.back() != ':' && text.front() != '-' &&
                     text.front() != ':' && text.find_first_not_of(kPlain) == std::string::npos;
  if (plain) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

enum class Empty { kRefused, kAllowed };

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

std::vector<std::pair<std::string, std::string>> PolicyNames() { return {{"lru", "lru"}}; }

std::vector<std::pair<std::string, GrantChoice>> GrantNames() {
  return {{"read_write", GrantChoice::kReadWrite},
          {"read", GrantChoice::kRead},
          {"write", GrantChoice::kWrite}};
}

constexpr Range<double> kShare = {0.01, 1.0};

constexpr Range<double> kTenantShare = {0.001, 0.99};

std::vector<ConfigKey> ListenKeys() {
  return {
      Socket("listen.unix", In(&Config::listen, &ListenConfig::unix_path), Empty::kRefused,
             "Unix socket of the gRPC service."),
      Socket("listen.local", In(&Config::listen, &ListenConfig::local_path), Empty::kAllowed,
             "Unix socket of the local path: engine workers on this host, shared memory."),
      Mode("listen.socket_mode", InAccess(&Config::listen, &AccessConfig::socket_mode),
           "Mode of these two sockets' files."),
      Group("listen.socket_group", InAccess(&Config::listen, &AccessConfig::socket_group),
            "Group of these two sockets' files."),
      Numbers("listen.allowed_uids", InAccess(&Config::listen, &AccessConfig::allowed_uids),
              "Users who may connect there; with both lists empty whoever the mode lets."),
      Numbers("listen.allowed_gids", InAccess(&Config::listen, &AccessConfig::allowed_gids),
              "Groups who may: of the peer's process, not its supplementary ones."),
      Choice<GrantChoice>("listen.socket_grant",
                          InAccess(&Config::listen, &AccessConfig::socket_grant), GrantNames(),
                          "What sessions by these two sockets may do: read is get and lookup, "
                          "write is put and delete."),
      Names("listen.certificate_names", InAccess(&Config::listen, &AccessConfig::certificate_names),
            true,
            "DNS or URI names in client certificates that are the default tenant's; any is every "
            "certificate of tls.client_ca_file. NAME read or NAME write grants no more than that."),
      Dir("listen.token_file", InAccess(&Config::listen, &AccessConfig::token_file),
          Empty::kAllowed,
          "Tokens that are the default tenant's: a line each, the token's SHA-256 in hex, then "
          "read or write if it grants no more. Read again when it changes."),
      Socket("listen.admin", In(&Config::listen, &ListenConfig::admin_path), Empty::kRefused,
             "Unix socket of the admin calls, mode 0600: for the daemon's user and root."),
      Address("listen.tcp", In(&Config::listen, &ListenConfig::tcp_address),
              "TCP address of the gRPC service. Needs tls, and clients that say who they are, "
              "unless it is a loopback address."),
      Bool("listen.tcp_insecure_plaintext",
           In(&Config::listen, &ListenConfig::tcp_insecure_plaintext),
           "true: listen.tcp may be any address without tls. Whoever reaches it reads, changes and "
           "deletes what the default tenant has, and sees all that is sent."),

      Dir("tls.cert_file", In(&Config::tls, &TlsConfig::cert_file), Empty::kAllowed,
          "The daemon's certificate and those between it and its root, PEM."),
      Dir("tls.key_file", In(&Config::tls, &TlsConfig::key_file), Empty::kAllowed,
          "Its private key, PEM, without a password; others may have no access to the file."),
      Dir("tls.client_ca_file", In(&Config::tls, &TlsConfig::client_ca_file), Empty::kAllowed,
          "Mutual TLS: certificates, PEM, one of which must have signed a client's."),
      Names("tls.admin_certificate_names", In(&Config::tls, &TlsConfig::admin_certificate_names),
            false, "Names in client certificates that may make admin calls over TCP; [] for none."),
  };
}

std::vector<ConfigKey> TenantKeys() {
  return {
      MustSay(Text("tenants[].name", InTenant(&TenantConfig::name), "a name",
                   "1 to 32 of a-z, 0-9 and -", CheckTenantName, Empty::kRefused,
                   "Its name. Another name makes another tenant, which finds none of its chunks."),
              "give the tenant a name"),
      MustSay(Socket("tenants[].unix", InTenant(&TenantConfig::unix_path), Empty::kRefused,
                     "As listen.unix, for this tenant alone."),
              "say where this tenant's clients come in"),
      Socket("tenants[].local", InTenant(&TenantConfig::local_path), Empty::kAllowed,
             "As listen.local, for this tenant alone."),
      Mode("tenants[].socket_mode", InTenantAccess(&AccessConfig::socket_mode),
           "As listen.socket_mode."),
      Group("tenants[].socket_group", InTenantAccess(&AccessConfig::socket_group),
            "As listen.socket_group."),
      Numbers("tenants[].allowed_uids", InTenantAccess(&AccessConfig::allowed_uids),
              "As listen.allowed_uids."),
      Numbers("tenants[].allowed_gids", InTenantAccess(&AccessConfig::allowed_gids),
              "As listen.allowed_gids."),
      Choice<GrantChoice>("tenants[].socket_grant", InTenantAccess(&AccessConfig::socket_grant),
                          GrantNames(), "As listen.socket_grant."),
      Names("tenants[].certificate_names", InTenantAccess(&AccessConfig::certificate_names), true,
            "As listen.certificate_names."),
      Dir("tenants[].token_file", InTenantAccess(&AccessConfig::token_file), Empty::kAllowed,
          "As listen.token_file."),
      MustSay(Fraction("tenants[].g2_share", InTenant(&TenantConfig::g2_share), kTenantShare,
                       "Its share of g2.capacity, rounded down to whole segments."),
              "say how much of g2.capacity is this tenant's, like 25%"),
      Size("tenants[].g3_quota", InTenant(&TenantConfig::g3_quota_bytes), {0, 65536 * kTiB},
           "Bytes of G3 that its chunks may hold, over all paths; at it, its own oldest go. Others "
           "take nothing of it. 0: no limit; of what the quotas leave, who has more than goes with "
           "its part of g2.capacity gives first when a path is full."),
  };
}

std::vector<ConfigKey> TierKeys() {
  return {
      Size("g2.capacity", In(&Config::g2, &G2Config::capacity_bytes), {kMiB, 16 * kTiB},
           "Host memory for chunks: a hard limit, taken at the start."),
      SizeInUnits("g2.segment_bytes", In(&Config::g2, &G2Config::segment_bytes), {2 * kMiB, kGiB},
                  2 * kMiB,
                  "It is taken, mapped and given to tenants in segments of this size; a chunk may "
                  "lie across them."),
      Choice<ArenaChoice>(
          "g2.arena", In(&Config::g2, &G2Config::arena),
          {{"auto", ArenaChoice::kAuto},
           {"memfd", ArenaChoice::kMemfd},
           {"mount", ArenaChoice::kMount}},
          "Where that memory comes from. mount outlives the daemon, memfd does not."),
      Dir("g2.arena_dir", In(&Config::g2, &G2Config::arena_dir), Empty::kAllowed,
          "For mount: a private tmpfs (huge=always) or hugetlbfs, with 0.2 % more than "
          "g2.capacity."),
      Dir("g2.arena_readonly_dir", In(&Config::g2, &G2Config::arena_readonly_dir), Empty::kAllowed,
          "For mount: a read-only bind mount of arena_dir, where clients' descriptors come from."),
      Choice<std::string>("g2.policy", In(&Config::g2, &G2Config::policy), PolicyNames(),
                          "Which chunk is evicted from memory next."),
      Fraction("g2.dirty_budget", In(&Config::g2, &G2Config::dirty_budget), kShare,
               "Share of g2.capacity that may wait for its write to G3."),
      Count("g2.copy_threads", In(&Config::g2, &G2Config::copy_threads), {0, 64},
            "Threads that copy and checksum what is put, and verify; 0: as many as cores, at most "
            "4."),

      MustSay(
          Dir("g3.paths[].dir", InG3Path(&G3PathConfig::dir), Empty::kRefused,
              "Directory on XFS or ext4, best a device of its own. Must be said for every path."),
          "say where this path is"),
      Size("g3.paths[].capacity", InG3Path(&G3PathConfig::capacity_bytes), {64 * kMiB, 1024 * kTiB},
           "Bytes that the directory may hold, index included."),
      Bool("g3.paths[].required", InG3Path(&G3PathConfig::required),
           "Refuse to start when this path is broken, instead of starting without it."),
      Choice<std::string>("g3.policy", In(&Config::g3, &G3Config::policy), PolicyNames(),
                          "Which chunk is evicted from NVMe next."),
      Choice<WritePolicyChoice>("g3.write_policy", In(&Config::g3, &G3Config::write_policy),
                                {{"eager", WritePolicyChoice::kEager}},
                                "When a chunk is written to NVMe."),
      Choice<IoChoice>(
          "g3.io", In(&Config::g3, &G3Config::io),
          {{"auto", IoChoice::kAuto}, {"uring", IoChoice::kUring}, {"threads", IoChoice::kThreads}},
          "How it is read and written; auto falls back from io_uring to threads."),
      Size("g3.scrub_bytes_per_second", In(&Config::g3, &G3Config::scrub_bytes_per_second),
           {0, 64 * kGiB},
           "How much of NVMe is read in the background to find what has rotted; 0: nothing."),

      Dir("encryption.master_key_file", In(&Config::encryption, &EncryptionConfig::master_key_file),
          Empty::kAllowed,
          "32 random bytes, or 64 hexadecimal digits: wraps the tenants' keys in "
          "state.dir/keyring. "
          "Others may have no access to the file. Empty: chunks lie on NVMe as they are."),
  };
}

std::vector<ConfigKey> LimitAndServiceKeys() {
  using std::chrono::milliseconds;
  return {
      Count("limits.max_chunks", In(&Config::limits, &LimitsConfig::max_chunks),
            {1000, 1'000'000'000}, "Chunks in all tiers together; sizes the tables."),
      Count("limits.keys_per_call", In(&Config::limits, &LimitsConfig::keys_per_call), {1, 65536},
            "Keys in one call."),
      Count("limits.sessions", In(&Config::limits, &LimitsConfig::sessions), {1, 65536},
            "Sessions at once; of these each tenant has its part, as of g2.capacity."),
      Count("limits.leases_per_session", In(&Config::limits, &LimitsConfig::leases_per_session),
            {1, 1'000'000}, "Leases of one session at once."),
      Fraction("limits.leased_bytes", In(&Config::limits, &LimitsConfig::leased_bytes), kShare,
               "Share of g2.capacity that all leases together may hold."),
      Fraction("limits.reserved_bytes", In(&Config::limits, &LimitsConfig::reserved_bytes), kShare,
               "Share of g2.capacity that may be reserved by puts not sealed yet."),
      Count("limits.connections", In(&Config::limits, &LimitsConfig::connections), {1, 65536},
            "gRPC connections of one Unix socket, or by listen.tcp, at once."),
      Size("limits.receive_memory", In(&Config::limits, &LimitsConfig::receive_memory_bytes),
           {64 * kMiB, kTiB},
           "Memory for gRPC's messages on their way in; over it calls are cut off, any of them."),
      Fraction("limits.pinned_bytes", In(&Config::limits, &LimitsConfig::pinned_bytes), kShare,
               "Share of g2.capacity that gets by gRPC may hold while they are sent, half of it "
               "one session; more of them wait."),
      Duration("limits.stall_timeout", In(&Config::limits, &LimitsConfig::stall_timeout),
               {milliseconds(100), milliseconds(3'600'000)},
               "A get whose client does not take a frame, or a put whose client sends none, for "
               "this long is ended."),
      Duration("limits.peer_timeout", In(&Config::limits, &LimitsConfig::peer_timeout),
               {milliseconds(300), milliseconds(3'600'000)},
               "A gRPC connection from which no answer comes for this long is closed, and what "
               "its sessions hold is given back."),
      Size("limits.staging_per_session",
           In(&Config::limits, &LimitsConfig::staging_per_session_bytes), {2 * kMiB, 64 * kGiB},
           "Staging memory of one local session, from which its puts are read."),
      Fraction("limits.staging", In(&Config::limits, &LimitsConfig::staging), kShare,
               "Staging memory of all sessions together: a share of g2.capacity, on top of it."),
      Duration("limits.session_grace", In(&Config::limits, &LimitsConfig::session_grace),
               {milliseconds(100), milliseconds(3'600'000)},
               "A local client that answers no ping for this long loses its leases."),
      Count("limits.busy_poll_us", In(&Config::limits, &LimitsConfig::busy_poll_us), {0, 1000},
            "How long the local path's thread looks for requests before it sleeps, while they come "
            "one right after the other. 0: never; saves a core's time, costs latency."),

      Address("metrics.listen", In(&Config::metrics, &MetricsConfig::listen_address),
              "HTTP address of /metrics, /healthz and /readyz."),

      Choice<LogLevelChoice>("log.level", In(&Config::log, &LogConfig::level),
                             {{"trace", LogLevelChoice::kTrace},
                              {"debug", LogLevelChoice::kDebug},
                              {"info", LogLevelChoice::kInfo},
                              {"warn", LogLevelChoice::kWarn},
                              {"error", LogLevelChoice::kError}},
                             "The least severe events that are logged."),
      Choice<LogFormatChoice>(
          "log.format", In(&Config::log, &LogConfig::format),
          {{"logfmt", LogFormatChoice::kLogfmt}, {"json", LogFormatChoice::kJson}},
          "How a line looks."),

      Dir("state.dir", In(&Config::state, &StateConfig::dir), Empty::kRefused,
          "The daemon's own small files: identity, secret."),

      Duration("drain.timeout", In(&Config::drain, &DrainConfig::timeout),
               {milliseconds(0), milliseconds(3'600'000)},
               "How long a stop waits for calls and write-backs under way."),
  };
}

}  // namespace

absl::string_view ConfigKey::section() const {
  return absl::string_view(path).substr(0, path.find_first_of(".["));
}

absl::string_view ConfigKey::list() const {
  const size_t brackets = path.find("[].");
  return brackets == std::string::npos ? absl::string_view()
                                       : absl::string_view(path).substr(0, brackets);
}

absl::string_view ConfigKey::name() const {
  return absl::string_view(path).substr(path.rfind('.') + 1);
}

const std::vector<ConfigSection>& ConfigSections() {
  static const std::vector<ConfigSection> sections = {
      {"listen", "Where clients come in: those of the default tenant."},
      {"tls", "TLS 1.3 of listen.tcp. The files are read again when they change."},
      {"tenants", "More tenants: own sockets, chunks of their own, whole segments of G2."},
      {"g2", "G2, host DRAM."},
      {"g3", "G3, local NVMe."},
      {"encryption", "AES-256-GCM of what is written to G3 from now on, a key for each tenant."},
      {"limits", "Limits; a call above one is refused with a message that names it."},
      {"metrics", "Prometheus metrics."},
      {"log", "The log, on standard error."},
      {"state", "State outside the tiers."},
      {"drain", "Stopping."},
  };
  return sections;
}

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> all;
    for (const auto& part : {ListenKeys(), TenantKeys(), TierKeys(), LimitAndServiceKeys()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return keys;
}

const std::vector<ConfigList>& ConfigLists() {
  static const std::vector<ConfigList> lists = {
      {.path = "g3.paths",
       .doc = "One entry a device; [] for no G3.",
       .example_entry = "{dir: /nvme0/kvkeep, capacity: 1TiB}",
       .entry_shape = "{dir: ..., capacity: ...}",
       .max_entries = kMaxG3Paths,
       .size = [](const Config& config) { return config.g3.paths.size(); },
       .resize = [](Config& config, size_t entries) { config.g3.paths.assign(entries, {}); },
       .set_example = [](Config& config) { config.g3.paths = {G3PathConfig{}}; }},
      {.path = "tenants",
       .doc = "One entry a tenant, such as",
       .example_entry = "{name: a, unix: /run/kvkeep/a.sock, g2_share: 25%}",
       .entry_shape = "{name: ..., unix: ..., g2_share: ...}",
       .max_entries = kMaxTenants,
       .size = [](const Config& config) { return config.tenants.size(); },
       .resize = [](Config& config, size_t entries) { config.tenants.assign(entries, {}); },
       .set_example =
           [](Config& config) {
             config.tenants = {{.name = "team-a",
                                .unix_path = "/run/kvkeep/team-a/kvkeep.sock",
                                .local_path = "/run/kvkeep/team-a/local.sock",
                                .g2_share = 0.25}};
           }},
  };
  return lists;
}

const ConfigList* FindConfigList(absl::string_view path) {
  for (const ConfigList& list : ConfigLists()) {
    if (list.path == path) return &list;
  }
  return nullptr;
}

}  // namespace kvkeep
