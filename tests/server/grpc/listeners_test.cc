// Access by the gRPC sockets of a whole daemon, and the identities that clients get.
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "server/sockets/guarded_sockets.h"
#include "server/sockets/http2_gate.h"
#include "tests/fakes/free_port.h"
#include "tests/fakes/lingering_sockets.h"
#include "tests/server/grpc/service_harness.h"
#include "tests/server/other_user.h"
#include "tests/server/soon.h"

namespace kvkeep {
namespace {

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// A channel over an existing connection; for calls before its end only.
std::shared_ptr<grpc::Channel> Over(UniqueFd fd) {
  REQUIRE(fd.valid());
  fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  return grpc::CreateInsecureChannelFromFd("connected", fd.Release());
}

grpc::Status ServerInfo(const std::shared_ptr<grpc::Channel>& channel) {
  v1::GetServerInfoResponse response;
  grpc::ClientContext context;
  return v1::KvCache::NewStub(channel)->GetServerInfo(&context, {}, &response);
}

class OpenSession {
 public:
  explicit OpenSession(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::KvCache::NewStub(channel)), events_(stub_->OpenSession(&context_, {})) {
    v1::SessionEvent event;
    REQUIRE(events_->Read(&event));
  }
  ~OpenSession() {
    context_.TryCancel();
    events_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::KvCache::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> events_;
};

// A daemon whose sockets other users can find, and which lets any of them connect.
struct SharedDaemon : TestDaemon {
  explicit SharedDaemon(const PeerPolicy& policy = {}) {
    Stop();
    const std::string dir = std::filesystem::path(socket_path()).parent_path();
    REQUIRE(chmod(dir.c_str(), 0755) == 0);
    options().tenants[0].grpc.mode = 0666;
    options().tenants[0].grpc.policy = policy;
    Start();
  }
  std::string socket_path() { return options().tenants[0].grpc.path; }
};

// Every call that names a session, about its chunk 1. Delete comes last.
std::vector<grpc::Status> AllCalls(const TestClient& client, uint64_t lease) {
  std::vector<grpc::Status> answers;
  const auto call = [&](auto method, const auto& request, auto response) {
    grpc::ClientContext context;
    answers.push_back((client.stub.get()->*method)(&context, request, &response));
  };
  using Stub = v1::KvCache::Stub;
  v1::OpenNamespaceRequest open;
  open.set_session_token(client.session);
  open.set_model("test");
  open.set_dtype("bf16");
  open.set_layout("NHD");
  open.set_tokens_per_chunk(256);
  open.set_parts(4);
  open.set_hash_algorithm("sha256");
  call(&Stub::OpenNamespace, open, v1::OpenNamespaceResponse());
  call(&Stub::Lookup, client.About<v1::LookupRequest>({1}), v1::LookupResponse());
  call(&Stub::Touch, client.About<v1::TouchRequest>({1}), v1::TouchResponse());
  call(&Stub::Prefetch, client.About<v1::PrefetchRequest>({1}), v1::PrefetchResponse());
  auto get = client.About<v1::GetRequest>({1});
  get.set_lease_id(lease);
  answers.push_back(client.Get(get).second);
  v1::PutFrame put = client.FirstFrame(2, 4);
  put.set_payload("four");
  answers.push_back(client.Put({put}).second);
  {
    v1::WatchRequest watch;
    watch.set_session_token(client.session);
    watch.set_namespace_digest(client.ns);
    grpc::ClientContext context;
    const auto events = client.stub->Watch(&context, watch);
    v1::WatchEvents event;
    const bool told = events->Read(&event);
    if (told) context.TryCancel();
    const grpc::Status status = events->Finish();
    answers.push_back(told ? grpc::Status::OK : status);
  }
  v1::ReleaseRequest release;
  release.set_session_token(client.session);
  release.set_lease_id(lease);
  call(&Stub::Release, release, v1::ReleaseResponse());
  call(&Stub::Delete, client.About<v1::DeleteRequest>({1}), v1::DeleteResponse());
  return answers;
}

// Returns true if the other side closes the connection within ten seconds.
bool IsClosed(const UniqueFd& fd) {
  char byte = 0;
  pollfd readable{fd.get(), POLLIN, 0};
  while (poll(&readable, 1, 10'000) == 1) {
    if (read(fd.get(), &byte, 1) <= 0) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a session's peer is who connected, as the kernel says; over TCP it is the address") {
  TestDaemon daemon;
  daemon.Stop();
  daemon.options().tcp_address = absl::StrCat("127.0.0.1:", FreePort());
  daemon.Start();
  const OpenSession by_socket(daemon.Channel());
  v1::StatusResponse status = daemon.Status();
  REQUIRE(status.sessions_size() == 1);
  CHECK(status.sessions(0).peer() == PeerCredentials{getpid(), geteuid(), getegid()}.ToString());

  const OpenSession by_tcp(
      grpc::CreateChannel(daemon.options().tcp_address, grpc::InsecureChannelCredentials()));
  status = daemon.Status();
  REQUIRE(status.sessions_size() == 2);
  const bool first = status.sessions(0).peer().find("ipv4:127.0.0.1:") == 0;
  const bool second = status.sessions(1).peer().find("ipv4:127.0.0.1:") == 0;
  CHECK(first != second);
}

TEST_CASE("a descriptor's number that comes again stands for who has it now") {
  if (!CanBeSomebodyElse()) return;
  SharedDaemon daemon;
  for (int i = 0; i < 20; ++i) {
    const uid_t uid = kSomeUser + static_cast<uid_t>(i);
    {
      const OpenSession session(Over(ConnectAs(uid, kSomeGroup, daemon.socket_path())));
      const v1::StatusResponse status = daemon.Status();
      REQUIRE(status.sessions_size() == 1);
      CHECK(status.sessions(0).peer() ==
            absl::StrCat("pid=", getpid(), " uid=", uid, " gid=64124"));
    }
    REQUIRE(daemon.Eventually([](const auto& status) { return status.sessions_size() == 0; }));
  }
}

TEST_CASE("whom the policy keeps out is told why, in answer to its first call, and is counted") {
  if (!CanBeSomebodyElse()) return;
  SharedDaemon daemon({.uids = {0}, .gids = {77}});
  const std::shared_ptr<grpc::Channel> refused =
      Over(ConnectAs(kSomeUser, kSomeGroup, daemon.socket_path()));
  const grpc::Status status = ServerInfo(refused);
  CHECK(status.error_code() == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(status.error_message() ==
        absl::StrCat("pid=", getpid(),
                     " uid=64123 gid=64124 may not use this socket: allowed_uids ",
                     "is [0], allowed_gids is [77]"));
  {
    grpc::ClientContext context;
    const auto stub =
        v1::KvCache::NewStub(Over(ConnectAs(kSomeUser, kSomeGroup, daemon.socket_path())));
    const auto events = stub->OpenSession(&context, {});
    v1::SessionEvent event;
    CHECK_FALSE(events->Read(&event));
    CHECK(events->Finish().error_code() == grpc::StatusCode::PERMISSION_DENIED);
  }
  CHECK(daemon.Status().sessions_size() == 0);
  CHECK(daemon.Status().counters().at("refused_connections") == 2);
  CHECK(ServerInfo(Over(ConnectAs(kSomeUser, 77, daemon.socket_path()))).ok());
  CHECK(ServerInfo(daemon.Channel()).ok());
  CHECK(daemon.Status().counters().at("refused_connections") == 2);

  // Many of them are closed without a message instead of kept.
  std::vector<UniqueFd> many;
  for (int i = 0; i < 100; ++i) {
    many.push_back(ConnectAs(kSomeUser, kSomeGroup, daemon.socket_path()));
    REQUIRE(many.back().valid());
  }
  CHECK(IsClosed(many.back()));
  CHECK(daemon.Eventually(
      [](const auto& status) { return status.counters().at("refused_connections") == 102; }));
  CHECK(ServerInfo(daemon.Channel()).ok());
}

TEST_CASE("the admin socket is for the daemon's user and root, whatever its file's mode") {
  if (!CanBeSomebodyElse()) return;
  SharedDaemon daemon;
  const std::string path = daemon.options().admin_socket_path;
  struct stat info {};
  REQUIRE(lstat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
  CHECK_FALSE(ConnectAs(kSomeUser, kSomeGroup, path).valid());
  REQUIRE(chmod(path.c_str(), 0666) == 0);
  v1::StatusResponse response;
  grpc::ClientContext context;
  const std::shared_ptr<grpc::Channel> channel = Over(ConnectAs(kSomeUser, kSomeGroup, path));
  const grpc::Status status = v1::Admin::NewStub(channel)->Status(&context, {}, &response);
  CHECK(status.error_code() == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(daemon.Status().pid() == static_cast<uint64_t>(getpid()));
}

TEST_CASE("a missing directory of sockets is made for who may connect, the admin's for none") {
  const ScratchDir dir;
  TestDaemon daemon;
  daemon.Stop();
  DaemonOptions& options = daemon.options();
  options.tenants[0].grpc.path = dir / "tenants/a/kv.sock";
  options.tenants[0].local = {.path = dir / "own/local.sock", .mode = 0600};
  options.admin_socket_path = dir / "admin/admin.sock";
  daemon.Start();
  const auto mode = [&](const char* of) {
    struct stat info {};
    REQUIRE(stat((dir / of).c_str(), &info) == 0);
    return info.st_mode & 07777;
  };
  CHECK(mode("tenants/a") == 0711);  // the socket's own mode and group decide
  CHECK(mode("tenants") == 0711);
  CHECK(mode("own") == 0700);
  CHECK(mode("admin") == 0700);
}

TEST_CASE("tenants come in by their own sockets and find their own chunks only") {
  TestDaemon daemon;
  daemon.Stop();
  DaemonOptions& options = daemon.options();
  options.storage.arena.segment_bytes = 16 * kMiB;
  options.storage.store.tenants = {{.g2_segments = 3}, {.name = "a", .g2_segments = 1}};
  const std::string theirs = options.tenants[0].grpc.path + ".a";
  options.tenants.push_back({.name = "a", .grpc = {.path = theirs}});
  daemon.Start();
  const std::string payload = TestBytes(1, 1 << 20);
  const TestClient standard(daemon);
  CHECK(standard.PutChunk(1, payload).status() == v1::PUT_STATUS_STORED);
  const TestClient other(grpc::CreateChannel("unix:" + theirs, grpc::InsecureChannelCredentials()));
  CHECK(other.ns != standard.ns);  // the same name, another tenant
  const auto request = other.About<v1::GetRequest>({1});
  const auto [missed, status] = other.Get(request);
  REQUIRE(status.ok());
  REQUIRE(missed.size() == 1);
  CHECK(missed[0].status() == v1::CHUNK_STATUS_MISS);
  CHECK(other.PutChunk(1, payload).status() == v1::PUT_STATUS_STORED);
  // Not even with the other's digest.
  auto foreign = other.About<v1::LookupRequest>({1});
  foreign.set_namespace_digest(standard.ns);
  v1::LookupResponse response;
  grpc::ClientContext context;
  CHECK_FALSE(other.stub->Lookup(&context, foreign, &response).ok());
}

TEST_CASE("a session's token is of no use to another tenant, in any call and by any listener") {
  TestDaemon daemon;
  daemon.Stop();
  DaemonOptions& options = daemon.options();
  options.storage.arena.segment_bytes = 16 * kMiB;
  options.storage.store.tenants = {{.g2_segments = 3}, {.name = "a", .g2_segments = 1}};
  const std::string theirs = options.tenants[0].grpc.path + ".a";
  options.tenants.push_back({.name = "a", .grpc = {.path = theirs}});
  options.tcp_address = absl::StrCat("127.0.0.1:", FreePort());  // all are the default tenant
  daemon.Start();
  const TestClient owner(grpc::CreateChannel("unix:" + theirs, grpc::InsecureChannelCredentials()));
  CHECK(owner.PutChunk(1, TestBytes(1, 1 << 20)).status() == v1::PUT_STATUS_STORED);
  auto lookup = owner.About<v1::LookupRequest>({1});
  lookup.set_lease_mode(v1::LEASE_MODE_LEADING_RUN);
  v1::LookupResponse leased;
  {
    grpc::ClientContext context;
    REQUIRE(owner.stub->Lookup(&context, lookup, &leased).ok());
  }
  REQUIRE(leased.lease_id() != 0);

  const bool by_tcp = GENERATE(false, true);
  TestClient other(
      by_tcp ? grpc::CreateChannel(options.tcp_address, grpc::InsecureChannelCredentials())
             : daemon.Channel());
  other.session = owner.session;
  other.ns = owner.ns;
  const std::vector<grpc::Status> answers = AllCalls(other, leased.lease_id());
  // With the message for an unknown token.
  other.session = std::string(16, 'x');
  const grpc::Status unknown = other.Get(other.About<v1::GetRequest>({1})).second;
  CHECK(unknown.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  for (size_t i = 0; i < answers.size(); ++i) {
    INFO("call " << i);
    CHECK(answers[i].error_code() == unknown.error_code());
    CHECK(answers[i].error_message() == unknown.error_message());
  }
  CHECK(daemon.Status().counters().at("foreign_session_calls") == answers.size());

  // The session is unchanged: its chunk is there and its lease holds.
  for (const grpc::Status& status : AllCalls(owner, leased.lease_id())) CHECK(status.ok());
}

TEST_CASE("a socket has a limit of connections; those that were closed do not count") {
  TestDaemon daemon;
  daemon.Stop();
  daemon.options().max_connections = 8;
  daemon.Start();
  const std::string path = daemon.options().tenants[0].grpc.path;
  std::vector<UniqueFd> open;
  for (int i = 0; i < 8; ++i) open.push_back(ConnectTo(path));
  CHECK(IsClosed(ConnectTo(path)));
  CHECK(daemon.Status().counters().at("refused_connections") == 1);
  open.resize(4);
  CHECK(daemon.Eventually([&](const auto&) { return ServerInfo(daemon.Channel()).ok(); }));
}

TEST_CASE("a tenant's socket has a limit of its own, and one address over TCP has one") {
  TestDaemon daemon;
  daemon.Stop();
  daemon.options().max_connections = 8;
  daemon.options().max_address_connections = 3;
  daemon.options().tenants[0].connections = 2;
  const int port = FreePort();
  daemon.options().tcp_address = absl::StrCat("127.0.0.1:", port);
  daemon.Start();
  std::vector<UniqueFd> open;
  for (int i = 0; i < 2; ++i) open.push_back(ConnectTo(daemon.options().tenants[0].grpc.path));
  CHECK(IsClosed(ConnectTo(daemon.options().tenants[0].grpc.path)));
  // From two of this machine's addresses: 127.0.0.0/8 is its own.
  const auto connect_from = [port](const char* address) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in from{};
    from.sin_family = AF_INET;
    REQUIRE(inet_pton(AF_INET, address, &from.sin_addr) == 1);
    REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&from), sizeof(from)) == 0);
    sockaddr_in to = from;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(port));
    REQUIRE(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
    return fd;
  };
  for (int i = 0; i < 3; ++i) open.push_back(connect_from("127.0.0.2"));
  CHECK(IsClosed(connect_from("127.0.0.2")));
  CHECK(daemon.Status().counters().at("refused_connections") == 2);
  CHECK(ServerInfo(Over(connect_from("127.0.0.3"))).ok());
  open.clear();
  CHECK(daemon.Eventually([&](const auto&) {
    const UniqueFd again = connect_from("127.0.0.2");
    pollfd closed{again.get(), POLLIN | POLLRDHUP, 0};
    return poll(&closed, 1, 0) == 0;
  }));
}

TEST_CASE("a connection by TCP that is too old is ended, and its client may make another") {
  TestDaemon daemon;
  daemon.Stop();
  daemon.options().tcp_address = absl::StrCat("127.0.0.1:", FreePort());
  daemon.options().tcp_connection_age = std::chrono::milliseconds(300);
  daemon.Start();
  const auto channel =
      grpc::CreateChannel(daemon.options().tcp_address, grpc::InsecureChannelCredentials());
  CHECK(ServerInfo(channel).ok());
  const auto ten_seconds = std::chrono::system_clock::now() + std::chrono::seconds(10);
  CHECK(channel->WaitForStateChange(GRPC_CHANNEL_READY, ten_seconds));
  CHECK(ServerInfo(channel).ok());
  CHECK(daemon.Status().counters().at("connections") >= 2);
}

// Fails with a gRPC that allocates the memory of calls in another way.
TEST_CASE("what a call holds is metered, and given back at its end") {
  TestDaemon daemon;
  CHECK(ServerInfo(daemon.Channel()).ok());
  const Http2Gate& gate = Http2Gate::OfProcess();
  const uint64_t before = gate.call_bytes();
  {
    std::vector<std::unique_ptr<OpenSession>> sessions;
    const auto channel = daemon.Channel();
    for (int i = 0; i < 50; ++i) sessions.push_back(std::make_unique<OpenSession>(channel));
    CHECK(gate.call_bytes() >= before + 50 * 4 * kKiB);
  }
  CHECK(Soon([&] { return gate.call_bytes() <= before + 50 * kKiB; }));
}

TEST_CASE("a thousand calls at once, cancelled together, are no flood") {
  TestDaemon daemon;
  const auto stub = v1::KvCache::NewStub(daemon.Channel());
  const Http2Gate& gate = Http2Gate::OfProcess();
  const auto cuts = [&gate] {
    uint64_t sum = 0;
    for (size_t i = 0; i < kHttp2Faults; ++i) sum += gate.cuts(static_cast<Http2Fault>(i));
    return sum;
  };
  const uint64_t before = cuts();
  struct Call {
    grpc::ClientContext context;
    v1::SessionEvent event;
    std::unique_ptr<grpc::ClientAsyncReader<v1::SessionEvent>> reader;
    grpc::Status status;
  };
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 1000; ++i) {
    calls.push_back(std::make_unique<Call>());
    Call& call = *calls.back();
    call.reader = stub->AsyncOpenSession(&call.context, {}, &queue, nullptr);
  }
  void* tag = nullptr;
  bool ok = false;
  for (int i = 0; i < 1000; ++i) REQUIRE(queue.Next(&tag, &ok));
  for (const auto& call : calls) call->context.TryCancel();
  for (const auto& call : calls) call->reader->Finish(&call->status, call.get());
  for (int i = 0; i < 1000; ++i) REQUIRE(queue.Next(&tag, &ok));
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  CHECK(ServerInfo(daemon.Channel()).ok());
  CHECK(cuts() == before);
}

TEST_CASE("two thousand connects, with and without calls, leave no descriptor behind") {
  TestDaemon daemon;
  const std::string path = daemon.options().tenants[0].grpc.path;
  CHECK(ServerInfo(Over(ConnectTo(path))).ok());
  REQUIRE(daemon.Status().pid() != 0);
  const auto settled = [&](size_t most) {
    return daemon.Eventually([&](const auto&) { return OpenDescriptors() <= most; });
  };
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 2000; ++i) {
    UniqueFd fd = ConnectTo(path);
    REQUIRE(fd.valid());
    if (i % 10 == 0) CHECK(ServerInfo(Over(std::move(fd))).ok());
  }
  CHECK(settled(before + 4));
  // The last ones may still wait in the socket's backlog.
  CHECK(daemon.Eventually([](const v1::StatusResponse& status) {
    return status.counters().at("connections") >= 2001;
  }));
}

// gRPC has closed those, so no limit of connections counts them.
TEST_CASE("of a user whose connections wait to be closed no more are taken, until they are") {
  TestDaemon daemon;
  const std::string path = daemon.options().tenants[0].grpc.path;
  LingeringSockets lingering;
  for (const DescriptorCloser::Owner owner :
       {PassedByGuarded(1, geteuid()), ConnectionsOf(PassedByGuarded(1, geteuid()))}) {
    const uint64_t before = daemon.Status().counters().at("refused_connections");
    bool refused = false;
    // They are closed within some 300 ms: on a busy machine perhaps before the connection comes.
    for (int tries = 0; tries < 20 && !refused; ++tries) {
      for (int i = 0; i < 500; ++i) DescriptorCloser::OfProcess().Close(lingering.Make(), owner);
      const UniqueFd one_more = ConnectTo(path);
      CHECK(daemon.Eventually([&](const v1::StatusResponse& status) {
        refused = status.counters().at("refused_connections") == before + 1;
        return refused || !DescriptorCloser::OfProcess().Full(owner);
      }));
      if (refused) CHECK(IsClosed(one_more));
      lingering.End();  // no close waits any more
    }
    CHECK(refused);
    while (DescriptorCloser::OfProcess().Full(owner)) std::this_thread::yield();
    CHECK(ServerInfo(Over(ConnectTo(path))).ok());
  }
}

TEST_CASE("a daemon that stops takes its socket files away and ends its connections") {
  TestDaemon daemon;
  const std::string path = daemon.options().tenants[0].grpc.path;
  const UniqueFd silent = ConnectTo(path);
  const std::shared_ptr<grpc::Channel> channel = Over(ConnectTo(path));
  CHECK(ServerInfo(channel).ok());
  daemon.Stop();
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK_FALSE(std::filesystem::exists(daemon.options().admin_socket_path));
  CHECK(IsClosed(silent));
  CHECK(ServerInfo(channel).error_code() == grpc::StatusCode::UNAVAILABLE);
}

}  // namespace kvkeep
