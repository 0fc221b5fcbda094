#include "config/schema.h"

#include <absl/strings/str_replace.h>

#include <utility>

#include "config/g4_keys.h"
#include "config/key_kinds.h"
#include "config/values.h"
#include "tiers/policy/admission_policy.h"

namespace kvkeep {
namespace {

using config_internal::Address;
using config_internal::AsSaid;
using config_internal::Bool;
using config_internal::Choice;
using config_internal::Count;
using config_internal::Dir;
using config_internal::Duration;
using config_internal::Empty;
using config_internal::Fraction;
using config_internal::Gpus;
using config_internal::Group;
using config_internal::In;
using config_internal::InAccess;
using config_internal::InG3Path;
using config_internal::InLimits;
using config_internal::InTenant;
using config_internal::InTenantAccess;
using config_internal::InTenantLimits;
using config_internal::Mode;
using config_internal::MustSay;
using config_internal::Names;
using config_internal::Numbers;
using config_internal::Paths;
using config_internal::Range;
using config_internal::Size;
using config_internal::SizeInUnits;
using config_internal::Socket;
using config_internal::Text;

std::vector<std::pair<std::string, GrantChoice>> GrantNames() {
  return {{"read_write", GrantChoice::kReadWrite},
          {"read", GrantChoice::kRead},
          {"write", GrantChoice::kWrite}};
}

constexpr Range<double> kShare = {0.01, 1.0};

constexpr Range<double> kTenantShare = {0.001, 0.99};

constexpr Range<uint64_t> kKeyRates = {0, 1'000'000'000'000}, kByteRates = {0, 16 * kTiB};
constexpr Range<uint64_t> kTenantBytes = {0, 16 * kTiB}, kTenantConnections = {0, 65536};

ConfigKey Endpoint(std::string path, config_internal::Place<std::string> place, std::string doc) {
  return Text(std::move(path), std::move(place), "an endpoint",
              "tcp://host:port or ipc:///path; \"\" for none", CheckZmqEndpoint, Empty::kAllowed,
              std::move(doc));
}

std::vector<ConfigKey> ListenKeys() {
  return {
      Socket("listen.unix", In(&Config::listen, &ListenConfig::unix_path), Empty::kRefused,
             "Unix socket of the gRPC service."),
      Socket("listen.local", In(&Config::listen, &ListenConfig::local_path), Empty::kAllowed,
             "Unix socket of the local path: engine workers on this host, shared memory."),
      Socket("listen.bulk", In(&Config::listen, &ListenConfig::bulk_path), Empty::kAllowed,
             "Unix socket of the bulk protocol (proto/bulk/frame.h): gets and puts of gRPC's "
             "sessions with less work a byte."),
      Mode("listen.socket_mode", InAccess(&Config::listen, &AccessConfig::socket_mode),
           "Mode of the files of these sockets."),
      Group("listen.socket_group", InAccess(&Config::listen, &AccessConfig::socket_group),
            "Group of the files of these sockets."),
      Numbers("listen.allowed_uids", InAccess(&Config::listen, &AccessConfig::allowed_uids),
              "Users that may connect there. With both lists empty, the mode decides."),
      Numbers("listen.allowed_gids", InAccess(&Config::listen, &AccessConfig::allowed_gids),
              "Groups that may connect there: the group of the peer's process, not its "
              "supplementary groups."),
      Choice<GrantChoice>("listen.socket_grant",
                          InAccess(&Config::listen, &AccessConfig::socket_grant), GrantNames(),
                          "What sessions by these sockets may do: read is get and lookup, "
                          "write is put and delete."),
      Names("listen.certificate_names", InAccess(&Config::listen, &AccessConfig::certificate_names),
            true,
            "DNS or URI names in the default tenant's client certificates. any accepts each "
            "certificate that tls.client_ca_file signed. NAME read or NAME write grants only "
            "that."),
      Dir("listen.token_file", InAccess(&Config::listen, &AccessConfig::token_file),
          Empty::kAllowed,
          "Tokens of the default tenant, one a line: the token's SHA-256 in hex, then read or "
          "write if it grants only that. Read again when it changes."),
      Names("listen.readers", InAccess(&Config::listen, &AccessConfig::readers), false,
            "Tenants whose clients may read the default tenant's chunks by naming it. By the local "
            "path they map all of its G2."),
      Bool("listen.shared", InAccess(&Config::listen, &AccessConfig::shared),
           "The default tenant's chunks are read from other nodes of the fleet and served to them. "
           "Each of those nodes can read and replace what is shared."),
      Gpus("listen.gpus", InAccess(&Config::listen, &AccessConfig::gpus),
           "GPUs whose memory the default tenant's workers may register, by UUID; [] for none."),
      Socket("listen.admin", In(&Config::listen, &ListenConfig::admin_path), Empty::kRefused,
             "Unix socket of the admin calls, mode 0600: for the daemon's user and root. Keep its "
             "directory apart from tenants' sockets, as root in a container that has it is admin."),
      Address("listen.tcp", In(&Config::listen, &ListenConfig::tcp_address),
              "TCP address of the gRPC service. Beyond loopback it needs tls, and clients that "
              "identify themselves."),
      Address("listen.bulk_tcp", In(&Config::listen, &ListenConfig::bulk_tcp_address),
              "TCP address of the bulk protocol, with the TLS and the clients of listen.tcp."),
      Duration("listen.tcp_connection_age", In(&Config::listen, &ListenConfig::tcp_connection_age),
               {std::chrono::milliseconds(0), std::chrono::hours(480)},
               "Maximum age of a TCP connection. Its client then makes another; calls that still "
               "run a minute later are ended. 0: no limit."),
      Bool("listen.tcp_insecure_plaintext",
           In(&Config::listen, &ListenConfig::tcp_insecure_plaintext),
           "true: listen.tcp may be any address without tls. Anyone who reaches it can read and "
           "delete the default tenant's chunks, and sees all that is sent."),
  };
}

std::vector<ConfigKey> TlsKeys() {
  return {
      Dir("tls.cert_file", In(&Config::tls, &TlsConfig::cert_file), Empty::kAllowed,
          "The daemon's certificate and the certificates between it and its root, PEM."),
      Dir("tls.key_file", In(&Config::tls, &TlsConfig::key_file), Empty::kAllowed,
          "Its private key, PEM, without a password; others may have no access to the file."),
      Dir("tls.client_ca_file", In(&Config::tls, &TlsConfig::client_ca_file), Empty::kAllowed,
          "Mutual TLS: CA certificates of clients, PEM."),
      Dir("tls.client_crl_file", In(&Config::tls, &TlsConfig::client_crl_file), Empty::kAllowed,
          "Revoked client certificates: CRLs, PEM, of each CA that issues client certificates. "
          "Clients of a CA whose CRL is missing or expired are refused."),
      Names("tls.admin_certificate_names", In(&Config::tls, &TlsConfig::admin_certificate_names),
            false, "Names in client certificates that may make admin calls over TCP; [] for none."),
  };
}

// Returns the keys of the default tenant's limits.
std::vector<ConfigKey> DefaultTenantLimitKeys() {
  using Limits = TenantLimitsConfig;
  return {
      Count("listen.keys_per_second", InLimits(&Config::listen, &Limits::keys_per_second),
            kKeyRates,
            "Chunks that the default tenant's clients may look up, put or get in a second; above "
            "it calls are refused. Its sessions share this, first come, first served. 0: no "
            "limit."),
      Size("listen.bytes_per_second", InLimits(&Config::listen, &Limits::bytes_per_second),
           kByteRates,
           "Payload that the default tenant's clients may put and get in a second, by the same "
           "rules. 0: no limit."),
      Size("listen.leased_bytes", InLimits(&Config::listen, &Limits::leased_bytes), kTenantBytes,
           "Bytes that the default tenant's leases may hold. 0: limits.leased_bytes in "
           "proportion to the tenant's g2_share."),
      Size("listen.staging", InLimits(&Config::listen, &Limits::staging_bytes), kTenantBytes,
           "Staging memory of the default tenant's local sessions. 0: limits.staging in "
           "proportion to the tenant's g2_share."),
      Count("listen.connections", InLimits(&Config::listen, &Limits::connections),
            kTenantConnections,
            "Connections of each of these two sockets at once. 0: limits.connections for "
            "listen.unix, the tenant's part of limits.sessions for listen.local."),
  };
}

std::vector<ConfigKey> TenantLimitKeys() {
  using Limits = TenantLimitsConfig;
  return {
      Count("tenants[].keys_per_second", InTenantLimits(&Limits::keys_per_second), kKeyRates,
            "As listen.keys_per_second."),
      Size("tenants[].bytes_per_second", InTenantLimits(&Limits::bytes_per_second), kByteRates,
           "As listen.bytes_per_second."),
      Size("tenants[].leased_bytes", InTenantLimits(&Limits::leased_bytes), kTenantBytes,
           "As listen.leased_bytes."),
      Size("tenants[].staging", InTenantLimits(&Limits::staging_bytes), kTenantBytes,
           "As listen.staging."),
      Count("tenants[].connections", InTenantLimits(&Limits::connections), kTenantConnections,
            "As listen.connections."),
  };
}

std::vector<ConfigKey> TenantKeys() {
  return {
      MustSay(Text("tenants[].name", InTenant(&TenantConfig::name), "a name",
                   "1 to 32 of a-z, 0-9 and -", CheckTenantName, Empty::kRefused,
                   "The tenant's name. Another name makes another tenant, without this one's "
                   "chunks."),
              "give the tenant a name"),
      MustSay(Socket("tenants[].unix", InTenant(&TenantConfig::unix_path), Empty::kRefused,
                     "As listen.unix, for this tenant alone."),
              "say where this tenant's clients come in"),
      Socket("tenants[].local", InTenant(&TenantConfig::local_path), Empty::kAllowed,
             "As listen.local, for this tenant alone."),
      Socket("tenants[].bulk", InTenant(&TenantConfig::bulk_path), Empty::kAllowed,
             "As listen.bulk, for this tenant alone."),
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
      Names("tenants[].readers", InTenantAccess(&AccessConfig::readers), false,
            "As listen.readers; default is the default tenant."),
      Bool("tenants[].shared", InTenantAccess(&AccessConfig::shared), "As listen.shared."),
      Gpus("tenants[].gpus", InTenantAccess(&AccessConfig::gpus),
           "As listen.gpus. Memory of these tenants comes as a descriptor only, never as a handle "
           "of CUDA IPC."),
      MustSay(Fraction("tenants[].g2_share", InTenant(&TenantConfig::g2_share), kTenantShare,
                       "The tenant's share of g2.capacity, in whole segments, and of the GPU "
                       "path's limits. The default tenant has the rest. A new tenant or another "
                       "share makes G2 start cold."),
              "say how much of g2.capacity is this tenant's, like 25%"),
      Size("tenants[].g3_quota", InTenant(&TenantConfig::g3_quota_bytes), {0, 65536 * kTiB},
           "Bytes of G3 that its chunks may hold, over all paths; above it its own oldest go. 0: "
           "no limit. In a full path, chunks of tenants above their share (as g2_share) are "
           "evicted first."),
      Dir("tenants[].g4_key_file", InTenant(&TenantConfig::g4_key_file), Empty::kAllowed,
          "Key of this tenant's chunks in G4, instead of fleet.key_file: nodes without it neither "
          "find nor read them. Empty: the fleet's key."),
      Endpoint(
          "tenants[].zmq", InTenant(&TenantConfig::zmq_endpoint),
          "As events.zmq, for this tenant's chunks alone. tcp needs events.zmq_insecure, even on "
          "loopback, which users of other tenants reach."),
      Endpoint("tenants[].zmq_replay", InTenant(&TenantConfig::zmq_replay_endpoint),
               "As events.zmq_replay."),
  };
}

std::vector<ConfigKey> G2Keys() {
  return {
      Size("g2.capacity", In(&Config::g2, &G2Config::capacity_bytes), {kMiB, 16 * kTiB},
           "Host memory for chunks: a hard limit, taken at the start. A reload may lower it: the "
           "least valuable chunks go at once, the memory at a restart."),
      SizeInUnits("g2.segment_bytes", In(&Config::g2, &G2Config::segment_bytes), {2 * kMiB, kGiB},
                  2 * kMiB,
                  "Size of the segments in which G2 is taken, mapped and given to tenants."),
      Choice<ArenaChoice>("g2.arena", In(&Config::g2, &G2Config::arena),
                          {{"auto", ArenaChoice::kAuto},
                           {"memfd", ArenaChoice::kMemfd},
                           {"mount", ArenaChoice::kMount}},
                          "Source of G2's memory. mount outlives the daemon, memfd does not."),
      Dir("g2.arena_dir", In(&Config::g2, &G2Config::arena_dir), Empty::kAllowed,
          "For mount: a private tmpfs (huge=always) or hugetlbfs, with 0.2 % more than "
          "g2.capacity."),
      Dir("g2.arena_readonly_dir", In(&Config::g2, &G2Config::arena_readonly_dir), Empty::kAllowed,
          "For mount: a read-only bind mount of arena_dir, where clients' descriptors come from."),
      Choice<PlacementChoice>(
          "g2.numa", In(&Config::g2, &G2Config::numa),
          {{"auto", PlacementChoice::kAuto},
           {"off", PlacementChoice::kOff},
           {"spread", PlacementChoice::kSpread},
           {"interleave", PlacementChoice::kInterleave}},
          "NUMA nodes of G2. spread: each segment on the next node that has memory; interleave: "
          "page by page over all; off: as the kernel places it. auto: spread, unless numactl or "
          "NUMAPolicy= sets a policy."),
      Choice<std::string>(
          "g2.policy", In(&Config::g2, &G2Config::policy), AsSaid({"reuse", "seconds", "lru"}),
          "Chunk that is evicted from memory next: the one that promises the "
          "fewest hits (reuse) or to save the least prefill (seconds), or the least "
          "recently used (lru). kvkeep simulate compares them."),
      Fraction("g2.dirty_budget", In(&Config::g2, &G2Config::dirty_budget), kShare,
               "Share of g2.capacity that may wait for its write to G3."),
      Count("g2.copy_threads", In(&Config::g2, &G2Config::copy_threads), {0, 64},
            "Threads that copy, checksum and verify chunks, beside G2's segments. 0: as many as "
            "cores, at most 8."),
  };
}

std::vector<ConfigKey> G3Keys() {
  return {
      MustSay(Dir("g3.paths[].dir", InG3Path(&G3PathConfig::dir), Empty::kRefused,
                  "Directory on XFS or ext4, best on a device of its own."),
              "say where this path is"),
      Size("g3.paths[].capacity", InG3Path(&G3PathConfig::capacity_bytes), {64 * kMiB, 1024 * kTiB},
           "Bytes that the directory may hold, index included. Above a lowered limit the least "
           "valuable chunks go, and the files keep their size; a limit above that size takes a "
           "restart."),
      Bool("g3.paths[].required", InG3Path(&G3PathConfig::required),
           "Refuse to start when this path is broken, instead of starting without it."),
      Choice<std::string>("g3.policy", In(&Config::g3, &G3Config::policy),
                          AsSaid({"reuse", "seconds", "lru"}),
                          "Chunk that is evicted from NVMe next; see g2.policy."),
      Choice<WritePolicyChoice>("g3.write_policy", In(&Config::g3, &G3Config::write_policy),
                                {{"eager", WritePolicyChoice::kEager}},
                                "When a chunk is written to NVMe."),
      Choice<std::string>("g3.admission", In(&Config::g3, &G3Config::admission),
                          AsSaid(AdmissionPolicyNames()),
                          "Chunks that are worth a write to NVMe: all (all), chunks that are used "
                          "again (second_use), or all within a budget of bytes (write_budget). "
                          "Durable puts are always written."),
      Size("g3.write_budget_bytes_per_second",
           In(&Config::g3, &G3Config::write_budget_bytes_per_second), {0, 64 * kGiB},
           "For write_budget: bytes written a second on all paths, divided in proportion to "
           "g2_share. 0: use g3.endurance_tbw instead."),
      Count("g3.endurance_tbw", In(&Config::g3, &G3Config::endurance_tbw), {0, 100'000'000},
            "For write_budget: terabytes that all drives together are rated to take. 0: use "
            "g3.write_budget_bytes_per_second instead."),
      Count("g3.endurance_years", In(&Config::g3, &G3Config::endurance_years), {1, 100},
            "For write_budget: years that the drives are to last with g3.endurance_tbw."),
      Choice<IoChoice>(
          "g3.io", In(&Config::g3, &G3Config::io),
          {{"auto", IoChoice::kAuto}, {"uring", IoChoice::kUring}, {"threads", IoChoice::kThreads}},
          "How devices are read and written; auto falls back from io_uring to threads."),
      Size("g3.scrub_bytes_per_second", In(&Config::g3, &G3Config::scrub_bytes_per_second),
           {0, 64 * kGiB},
           "Bytes of NVMe read a second in the background, to find damaged chunks. 0: none."),

      Dir("encryption.master_key_file", In(&Config::encryption, &EncryptionConfig::master_key_file),
          Empty::kAllowed,
          "32 random bytes, or 64 hexadecimal digits, which wrap the tenants' keys in "
          "state.dir/keyring. Others may have no access to the file. Empty: chunks on NVMe are not "
          "encrypted."),
      Paths("encryption.previous_master_key_files",
            In(&Config::encryption, &EncryptionConfig::previous_master_key_files),
            kMaxPreviousMasterKeys,
            "Former master keys. The next start wraps their keys by encryption.master_key_file; "
            "after it they are not needed."),
  };
}

std::vector<ConfigKey> GpuKeys() {
  return {
      Choice<GpuChoice>("gpu.mode", In(&Config::gpu, &GpuConfig::mode),
                        {{"auto", GpuChoice::kAuto},
                         {"off", GpuChoice::kOff},
                         {"required", GpuChoice::kRequired}},
                        "Copies between workers' GPU memory and G2, by the local path. auto: if "
                        "NVIDIA's driver is found; required: no start without it."),
  };
}

std::vector<ConfigKey> LimitKeys() {
  using std::chrono::milliseconds;
  return {
      Count("limits.max_chunks", In(&Config::limits, &LimitsConfig::max_chunks),
            {1000, 1'000'000'000},
            "Chunks in all tiers together. Sizes the tables: 12 bytes a chunk from the start, "
            "once used up to 800, or 300 if both policies are lru (deploy/README.md, Size)."),
      Count("limits.keys_per_call", In(&Config::limits, &LimitsConfig::keys_per_call), {1, 65536},
            "Keys in one call."),
      Count("limits.sessions", In(&Config::limits, &LimitsConfig::sessions), {1, 65536},
            "Sessions at once; each tenant's part is in proportion to its g2_share."),
      Count("limits.leases_per_session", In(&Config::limits, &LimitsConfig::leases_per_session),
            {1, 1'000'000}, "Leases of one session at once."),
      Fraction("limits.leased_bytes", In(&Config::limits, &LimitsConfig::leased_bytes), kShare,
               "Share of g2.capacity that all leases together may hold."),
      Fraction("limits.reserved_bytes", In(&Config::limits, &LimitsConfig::reserved_bytes), kShare,
               "Share of g2.capacity that may be reserved by puts not sealed yet."),
      Count("limits.connections", In(&Config::limits, &LimitsConfig::connections), {1, 65536},
            "gRPC connections of one Unix socket, or by listen.tcp, at once."),
      Count("limits.connections_per_address",
            In(&Config::limits, &LimitsConfig::connections_per_address), {0, 65536},
            "Connections by listen.tcp from one address (IPv6: one /64) at once. 0: a quarter of "
            "limits.connections, or all of them if listen.tcp is a loopback address."),
      Size("limits.receive_memory", In(&Config::limits, &LimitsConfig::receive_memory_bytes),
           {64 * kMiB, kTiB},
           "Memory for gRPC's messages on their way in; above it any call may be cut off."),
      Size("limits.call_memory", In(&Config::limits, &LimitsConfig::call_memory_bytes),
           {16 * kMiB, 64 * kGiB},
           "Memory for gRPC's calls, some 19 KiB each. Above a third of it, connections that begin "
           "many calls are held back; above all of it, they are cut off."),
      Count("limits.resets_per_second", In(&Config::limits, &LimitsConfig::resets_per_second),
            {0, 1'000'000},
            "gRPC calls that one user at a Unix socket, or one address, may reset in a second; "
            "connections that reset more are held back. 0: no limit."),
      Fraction(
          "limits.pinned_bytes", In(&Config::limits, &LimitsConfig::pinned_bytes), kShare,
          "Share of g2.capacity that gets by gRPC may hold while they are sent. Each tenant's "
          "part is in proportion to its g2_share, a session's is half of that; further gets wait."),
      Duration("limits.stall_timeout", In(&Config::limits, &LimitsConfig::stall_timeout),
               {milliseconds(100), milliseconds(3'600'000)},
               "A get whose client takes no frame for this long, or a put whose client sends none, "
               "is ended."),
      Duration("limits.peer_timeout", In(&Config::limits, &LimitsConfig::peer_timeout),
               {milliseconds(300), milliseconds(3'600'000)},
               "A gRPC connection that gives no answer for this long by TCP, or four times this "
               "long by a Unix socket, is closed, and its sessions end."),
      Size("limits.staging_per_session",
           In(&Config::limits, &LimitsConfig::staging_per_session_bytes), {2 * kMiB, 64 * kGiB},
           "Staging memory of one local session, from which its puts are read."),
      Fraction("limits.staging", In(&Config::limits, &LimitsConfig::staging), kShare,
               "Staging memory of all sessions together: a share of g2.capacity, on top of it."),
      Size("limits.local_memory", In(&Config::limits, &LimitsConfig::local_memory_bytes),
           {32 * kMiB, 64 * kGiB},
           "Memory for local clients' half-sent messages, puts under way and unread replies. "
           "Each tenant's part is in proportion to its g2_share, at least 32MiB; requests beyond "
           "it are refused."),
      Duration("limits.session_grace", In(&Config::limits, &LimitsConfig::session_grace),
               {milliseconds(100), milliseconds(3'600'000)},
               "A local client that answers no ping for this long loses its leases. One that "
               "leaves half a message, or replies unread, is cut off after it. A put in parts that "
               "got nothing for this long is rejected."),
      Count("limits.busy_poll_us", In(&Config::limits, &LimitsConfig::busy_poll_us), {0, 1000},
            "How long the local path's thread polls for the next request before it sleeps. 0: "
            "never; saves CPU time, costs latency."),
  };
}

std::vector<ConfigKey> ServiceKeys() {
  using std::chrono::milliseconds;
  return {
      Address("metrics.listen", In(&Config::metrics, &MetricsConfig::listen_address),
              "HTTP address of /metrics, /healthz and /readyz. Without metrics.token_file, "
              "/metrics shows sums, without tenants, models, namespaces or paths."),
      Socket("metrics.unix", In(&Config::metrics, &MetricsConfig::unix_path), Empty::kAllowed,
             "Unix socket of the same pages, /metrics with all labels; mode 0600."),
      Group("metrics.socket_group", In(&Config::metrics, &MetricsConfig::socket_group),
            "Group of that socket's file, which then has mode 0660."),
      Dir("metrics.token_file", In(&Config::metrics, &MetricsConfig::token_file), Empty::kAllowed,
          "Tokens for /metrics by TCP: with one it shows all labels, without one it is refused "
          "(401). One a line, the token's SHA-256 in hex. Read again when it changes."),

      Endpoint("events.zmq", In(&Config::events, &EventsConfig::zmq_endpoint),
               "ZeroMQ endpoint for routers: events of the default tenant's chunks, with the "
               "tokens of prompts, for all that can connect. ipc has the mode and group of its "
               "other sockets."),
      Endpoint("events.zmq_replay", In(&Config::events, &EventsConfig::zmq_replay_endpoint),
               "ZeroMQ endpoint where routers ask for messages that they missed."),
      Choice<EventFormChoice>(
          "events.form", In(&Config::events, &EventsConfig::form),
          {{"vllm", EventFormChoice::kVllm}, {"sglang", EventFormChoice::kSglang}},
          "Engine whose format events have: vLLM's are maps, SGLang's arrays."),
      Bool("events.zmq_insecure", In(&Config::events, &EventsConfig::zmq_insecure),
           "true: these endpoints may have any address, and tenants' endpoints may be tcp. Anyone "
           "who reaches them reads the tokens of prompts."),
      Size("events.queued_bytes", In(&Config::events, &EventsConfig::queued_bytes),
           {16 * kMiB, 64 * kGiB},
           "Bytes queued for slow subscribers. Tenants have equal parts, of at least 4MiB; one "
           "subscriber's queue has a quarter of it. Above it all subscribers are disconnected, and "
           "start over."),

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
          "Format of a line."),
      Duration("log.slow_operation", In(&Config::log, &LogConfig::slow_operation),
               {milliseconds(0), milliseconds(3'600'000)},
               "A request that takes this long is logged. The time of a gRPC stream, and of a put "
               "in parts by the local path, includes the client's part. 0: none is logged."),

      Dir("state.dir", In(&Config::state, &StateConfig::dir), Empty::kRefused,
          "The daemon's own small files: identity, secret."),

      Duration("drain.timeout", In(&Config::drain, &DrainConfig::timeout),
               {milliseconds(0), milliseconds(3'600'000)},
               "How long a stop waits for calls and write-backs under way."),
      Bool("drain.to_peers", In(&Config::drain, &DrainConfig::to_peers),
           "A stop gives the hottest shared chunks to peers that have room."),
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

std::string ConfigKey::shown_path(size_t entry) const {
  return absl::StrReplaceAll(path, {{"[]", absl::StrCat("[", entry, "]")}});
}

const std::vector<ConfigSection>& ConfigSections() {
  static const std::vector<ConfigSection> sections = {
      {"listen", "Addresses of the daemon, and limits of the default tenant."},
      {"tls", "TLS 1.3 of listen.tcp. The files are read again when they change."},
      {"tenants",
       "More tenants, with their own sockets and chunks, and with whole segments of G2."},
      {"g2", "G2, host DRAM."},
      {"g3", "G3, local NVMe."},
      {"encryption",
       "AES-256-GCM for chunks written to G3 from now on, with a key for each tenant."},
      {"g4", "G4, object storage that the nodes of a fleet share. Needs fleet."},
      {"remote", "Requests to G4."},
      {"fleet", "The nodes that share G4, or read from each other."},
      {"gpu", "Memory of GPUs."},
      {"limits", "Limits. A call above one is refused with a message that names it."},
      {"metrics", "Prometheus metrics."},
      {"events", "KV events for routers, over ZeroMQ."},
      {"log", "The log, on standard error."},
      {"state", "State outside the tiers."},
      {"drain", "Stopping."},
  };
  return sections;
}

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> all;
    for (const auto& part : {ListenKeys(), DefaultTenantLimitKeys(), TlsKeys(), TenantKeys(),
                             TenantLimitKeys(), G2Keys(), G3Keys(), config_internal::G4Keys(),
                             config_internal::FleetKeys(), GpuKeys(), LimitKeys(), ServiceKeys()}) {
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
       .example_entry = "{name: a, unix: /run/kvkeep-tenants/a/kvkeep.sock, g2_share: 25%}",
       .entry_shape = "{name: ..., unix: ..., g2_share: ...}",
       .max_entries = kMaxTenants,
       .size = [](const Config& config) { return config.tenants.size(); },
       .resize = [](Config& config, size_t entries) { config.tenants.assign(entries, {}); },
       .set_example =
           [](Config& config) {
             config.tenants = {{.name = "team-a",
                                .unix_path = "/run/kvkeep-tenants/team-a/kvkeep.sock",
                                .local_path = "/run/kvkeep-tenants/team-a/local.sock",
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
