#include "server/life/options.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <set>

#include "server/life/arena_owners.h"

namespace kvkeep {
namespace {

Config Loaded(const std::string& text) {
  const LoadResult result = LoadConfig(text, "kv.yaml");
  INFO((result.errors.empty() ? "" : result.errors[0]));
  REQUIRE(result.config.has_value());
  return *result.config;
}

}  // namespace

TEST_CASE("without tenants the default one has listen's sockets and the whole arena") {
  const DaemonOptions options = *ToDaemonOptions(Loaded("g2: {capacity: 4GiB}"));
  REQUIRE(options.tenants.size() == 1);
  CHECK(options.tenants[0].name.empty());
  CHECK(options.tenants[0].grpc.path == "/run/kvkeep/kvkeep.sock");
  CHECK(options.tenants[0].local.path == "/run/kvkeep/local.sock");
  CHECK(options.tenants[0].grpc.mode == 0660);
  CHECK(options.tenants[0].g2_segments == 4);
  CHECK(options.storage.store.tenants.empty());
  CHECK(options.storage.arena.segment_bytes == kGiB);
  CHECK(options.max_connections == 4096);
  CHECK(options.local.max_staging_bytes == kGiB);
  CHECK(options.local.max_all_staging_bytes == kGiB);  // a quarter
  CHECK(options.local.grace == std::chrono::seconds(10));
}

TEST_CASE("each tenant has its own sockets, peers and segments, in the order of the file") {
  const DaemonOptions options = *ToDaemonOptions(
      Loaded("listen: {unix: /d, local: '', socket_mode: 0600, allowed_uids: [1]}\n"
             "g2: {capacity: 2GiB, segment_bytes: 256MiB}\n"
             "limits: {connections: 5, staging: 50%, session_grace: 3s, busy_poll_us: 7,\n"
             "         local_memory: 160MiB}\n"
             "tenants:\n"
             "  - {name: a, unix: /a, local: /al, socket_group: video, allowed_uids: [2],\n"
             "     allowed_gids: [3, 4], g2_share: 25%, g3_quota: 1GiB}\n"
             "  - {name: b, unix: /b, socket_mode: 0666, g2_share: 12.5%}\n"));
  REQUIRE(options.tenants.size() == 3);
  const TenantListener& standard = options.tenants[0];
  CHECK(standard.grpc.path == "/d");
  CHECK(standard.grpc.mode == 0600);
  CHECK(standard.grpc.policy.uids == std::vector<uid_t>{1});
  CHECK(standard.local.path.empty());
  CHECK(standard.g2_segments == 5);
  CHECK(standard.g2_share == 0.625);
  const TenantListener& a = options.tenants[1];
  CHECK(a.name == "a");
  CHECK(a.grpc.path == "/a");
  CHECK(a.local.path == "/al");
  for (const UnixSocketOptions* socket : {&a.grpc, &a.local}) {
    CHECK(socket->mode == 0660);
    CHECK(socket->group == "video");
    CHECK(socket->policy.uids == std::vector<uid_t>{2});
    CHECK(socket->policy.gids == std::vector<gid_t>{3, 4});
  }
  CHECK(a.g2_segments == 2);
  CHECK(options.tenants[2].grpc.mode == 0666);
  CHECK(options.tenants[2].grpc.policy.uids.empty());
  CHECK(options.tenants[2].g2_segments == 1);
  CHECK(options.local.max_message_bytes == 160 * kMiB);
  CHECK(standard.message_bytes == 100 * kMiB);
  CHECK(a.message_bytes == 40 * kMiB);
  CHECK(options.tenants[2].message_bytes == 32 * kMiB);  // the least

  REQUIRE(options.storage.store.tenants.size() == 3);
  CHECK(options.storage.store.tenants[0].name.empty());
  CHECK(options.storage.store.tenants[0].g2_segments == 5);
  CHECK(options.storage.store.tenants[1].name == "a");
  CHECK(options.storage.store.tenants[1].g2_segments == 2);
  CHECK(options.storage.store.tenants[1].g3_quota_bytes == kGiB);
  CHECK(options.storage.store.tenants[2].g3_quota_bytes == 0);
  CHECK(options.storage.store.tenants[2].name == "b");
  CHECK(options.storage.store.tenants[2].g2_segments == 1);
  CHECK(options.storage.arena.segment_bytes == 256 * kMiB);
  CHECK(options.max_connections == 5);
  CHECK(options.local.max_all_staging_bytes == kGiB);
  CHECK(options.local.grace == std::chrono::seconds(3));
  CHECK(options.local.busy_poll == std::chrono::microseconds(7));
}

TEST_CASE("what a tenant has no limit of is shared out as G2 is, and rates reach the store") {
  const DaemonOptions options = *ToDaemonOptions(
      Loaded("listen: {keys_per_second: 5k, tcp: '10.0.0.1:70', tcp_insecure_plaintext: true}\n"
             "g2: {capacity: 8GiB}\n"
             "limits: {sessions: 100, staging: 50%, connections: 40}\n"
             "tenants:\n"
             "  - {name: a, unix: /a, g2_share: 25%, bytes_per_second: 1GiB, leased_bytes: 1GiB}\n"
             "  - {name: b, unix: /b, g2_share: 12.5%, staging: 1GiB, connections: 7}\n"));
  const auto& listeners = options.tenants;
  REQUIRE(listeners.size() == 3);
  CHECK(listeners[0].local_connections == 62);
  CHECK(listeners[1].local_connections == 25);
  CHECK(listeners[2].local_connections == 7);
  CHECK(listeners[1].connections == 0);
  CHECK(listeners[2].connections == 7);
  CHECK(listeners[0].staging_bytes == 4 * kGiB / 8 * 5);
  CHECK(listeners[1].staging_bytes == kGiB);
  CHECK(listeners[2].staging_bytes == kGiB);
  CHECK(listeners[0].gpu_part == 0.625);
  CHECK(listeners[1].gpu_part == 0.25);
  CHECK(listeners[2].gpu_part == 0.125);
  CHECK(options.pinned.tenant_bytes ==
        std::vector<uint64_t>{4 * kGiB / 8 * 5, kGiB, kGiB / 2});  // of half of g2.capacity
  const auto& tenants = options.storage.store.tenants;
  CHECK(tenants[0].keys_per_second == 5'000);
  CHECK(tenants[1].bytes_per_second == kGiB);
  CHECK(tenants[1].max_leased_bytes == kGiB);
  CHECK(tenants[2].keys_per_second == 0);
  CHECK(options.max_address_connections == 10);
  // On loopback all peers have the same address.
  CHECK(ToDaemonOptions(Loaded("listen: {tcp: '127.0.0.1:70'}"))->max_address_connections == 0);
  CHECK(ToDaemonOptions(Loaded("listen: {tcp: '127.0.0.1:70'}\n"
                               "limits: {connections_per_address: 3}"))
            ->max_address_connections == 3);
  const DaemonOptions shared =
      *ToDaemonOptions(Loaded("listen: {readers: [b]}\n"
                              "g2: {capacity: 8GiB}\n"
                              "tenants:\n"
                              "  - {name: a, unix: /a, g2_share: 25%, readers: [b, default]}\n"
                              "  - {name: b, unix: /b, g2_share: 25%}\n"));
  CHECK(shared.storage.store.tenants[0].readers == std::vector<TenantId>{TenantId(2)});
  CHECK(shared.storage.store.tenants[1].readers == std::vector<TenantId>{TenantId(2), TenantId(0)});
  CHECK(shared.storage.store.tenants[2].readers.empty());
  // Tenants with events, each with an equal part of the bytes that may wait.
  const DaemonOptions told =
      *ToDaemonOptions(Loaded("g2: {capacity: 8GiB}\nevents: {form: sglang, queued_bytes: 32MiB}\n"
                              "tenants:\n"
                              "  - {name: a, unix: /a, g2_share: 25%}\n"
                              "  - {name: b, unix: /b, g2_share: 25%, zmq: 'ipc:///zb', "
                              "zmq_replay: 'ipc:///zbr'}\n"
                              "  - {name: c, unix: /c, g2_share: 25%, zmq: 'ipc:///zc'}\n"));
  REQUIRE(told.events.size() == 2);
  CHECK(told.events[0].tenant == TenantId(2));
  CHECK(told.events[0].sockets.endpoint == "ipc:///zb");
  CHECK(told.events[0].sockets.replay_endpoint == "ipc:///zbr");
  CHECK(told.events[0].form == EventForm::kSglang);
  CHECK(told.events[0].sockets.queued_bytes == 16 * kMiB);
  CHECK(told.events[0].sockets.ipc_mode == told.tenants[2].grpc.mode);
  CHECK(told.events[1].tenant == TenantId(3));
  CHECK(shared.events.empty());
  // The default tenant alone.
  const DaemonOptions alone =
      *ToDaemonOptions(Loaded("listen: {bytes_per_second: 1MiB}\ng2: {capacity: 3GiB}"));
  REQUIRE(alone.storage.store.tenants.size() == 1);
  CHECK(alone.storage.store.tenants[0].bytes_per_second == kMiB);
  CHECK(alone.storage.store.tenants[0].g2_segments == 3);
}

TEST_CASE("kept memory goes to the same clients as before: its owners have another number else") {
  const auto number = [](const std::string& listen, const std::string& a, const std::string& b) {
    const DaemonOptions options = *ToDaemonOptions(
        Loaded(absl::StrCat("listen: {unix: /d", listen, "}\ng2: {capacity: 4GiB}\ntenants:\n",
                            "  - {name: a, unix: /a, local: /al, g2_share: 25%", a, "}\n",
                            "  - {name: b, unix: /b, local: /bl, g2_share: 25%", b, "}\n")));
    return NameArenaOwners(options.storage.store.tenants, options.tenants);
  };
  const std::vector<uint64_t> all = {
      number("", "", ""),
      number(", readers: [a]", "", ""),
      number(", readers: [b]", "", ""),
      number("", ", readers: [b]", ""),
      number("", ", readers: [b, default]", ""),
      number("", "", ", readers: [a]"),
      number(", allowed_uids: [1]", "", ""),
      number(", allowed_gids: [1]", "", ""),
      number("", ", allowed_uids: [1]", ""),
      number("", ", allowed_uids: [1, 2]", ""),
      number("", "", ", allowed_uids: [1]"),
      number(", socket_mode: 0600", "", ""),
      number("", ", socket_group: '4'", ""),
      number(", local: ''", "", ""),
  };
  CHECK(std::set<uint64_t>(all.begin(), all.end()).size() == all.size());
  // Changes that do not concern access to the memory, or that change nothing, keep the number.
  CHECK(number(", keys_per_second: 5", "", "") == all[0]);
  CHECK(number("", ", readers: [default, b]", "") == all[4]);
  CHECK(number("", ", allowed_uids: [2, 1]", "") == all[9]);
  const DaemonOptions plain = *ToDaemonOptions(Loaded("g2: {capacity: 4GiB}"));
  CHECK(NameArenaOwners(plain.storage.store.tenants, plain.tenants) == 0);
}

TEST_CASE("a tenant has the GPUs of its list, and only the default one passes CUDA IPC's handles") {
  const DaemonOptions options =
      *ToDaemonOptions(Loaded("g2: {capacity: 4GiB}\ntenants:\n"
                              "  - {name: a, unix: /a, g2_share: 25%, "
                              "gpus: [GPU-00010203-0405-0607-0809-0a0b0c0d0eff]}\n"
                              "  - {name: b, unix: /b, g2_share: 25%, gpus: []}\n"));
  const GpuRights& all = options.tenants[0].gpu_rights;
  CHECK(all.all);
  CHECK(all.ipc_handles);
  const GpuRights& one = options.tenants[1].gpu_rights;
  CHECK_FALSE(one.all);
  CHECK_FALSE(one.ipc_handles);
  REQUIRE(one.gpus.size() == 1);
  for (size_t i = 0; i < 15; ++i) CHECK(one.gpus[0][i] == static_cast<std::byte>(i));
  CHECK(one.gpus[0][15] == std::byte{0xff});
  CHECK_FALSE(options.tenants[2].gpu_rights.all);
  CHECK(options.tenants[2].gpu_rights.gpus.empty());
}

}  // namespace kvkeep
