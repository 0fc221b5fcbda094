// Clients that do not get the local path, and the reasons they get. No client harms the listener.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <set>
#include <utility>

#include "client/local/handshake.h"
#include "proto/local/message.h"
#include "tests/e2e/descriptors.h"
#include "tests/e2e/engine.h"
#include "tests/e2e/shell.h"
#include "tests/server/other_user.h"

namespace kvkeep::e2e {
namespace {

using client::PathChoice;
using local::Kind;

constexpr int kConnects = kSanitized ? 500 : 10'000;
constexpr char kNotAllowed[] = "may not use this socket";

Settings LocalSettings() {
  Settings settings;
  settings.local = true;
  settings.limits = "  staging_per_session: 2MiB\n";
  return settings;
}

// Returns the output of `kvkeep ping`, standard error included.
std::string Ping(const Site& site, const std::string& path) {
  const std::string command =
      absl::StrCat("'" KVKEEP_PATH "' --endpoint ", site.endpoint(), " --path ", path,
                   " ping 2>&1");
  FILE* const out = popen(command.c_str(), "r");
  REQUIRE(out != nullptr);
  std::string said;
  std::array<char, 256> some;
  while (fgets(some.data(), some.size(), out) != nullptr) said += some.data();
  pclose(out);
  return said;
}

// A client on the bare socket.
class BareClient {
 public:
  explicit BareClient(UniqueFd socket) : socket_(std::move(socket)) {
    REQUIRE(socket_.valid());
    timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  explicit BareClient(const std::string& path) : BareClient(ConnectTo(path, SOCK_SEQPACKET)) {}

  absl::Status Hello(const std::string& name = "") {
    local::MessageWriter hello(static_cast<uint16_t>(Kind::kHello), 1);
    hello.Append(local::Hello{.name_bytes = static_cast<uint32_t>(name.size())});
    hello.AppendText(name);
    local::Message reply = Ask(hello);
    local::BodyReader body(reply.body);
    absl::Status status = local::ReadReplyStatus(&body);
    if (status.ok()) REQUIRE(body.Read(&welcome));
    session_ = std::move(reply.descriptors);  // without the event socket there is no session
    return status;
  }
  // Returns the inodes of the segments that come after Welcome.
  std::set<ino_t> Segments() {
    std::set<ino_t> inodes;
    while (inodes.size() < welcome.segments) {
      for (const UniqueFd& fd : Receive().descriptors) {
        struct stat info {};
        REQUIRE(fstat(fd.get(), &info) == 0);
        CHECK(inodes.insert(info.st_ino).second);
      }
    }
    return inodes;
  }
  absl::Status OpenNamespace(const std::string& model) {
    local::MessageWriter request(static_cast<uint16_t>(Kind::kOpenNamespace), 3);
    request.Append(local::OpenNamespace{.tokens_per_chunk = 16,
                                        .parts = 1,
                                        .model_bytes = static_cast<uint16_t>(model.size())});
    request.AppendText(model);
    const local::Message reply = Ask(request);
    local::BodyReader body(reply.body);
    return local::ReadReplyStatus(&body);
  }
  absl::Status Lookup(const NamespaceDigest& ns, const ChunkKey& key) {
    local::MessageWriter request(static_cast<uint16_t>(Kind::kLookup), 2);
    request.Append(local::KeysRequest{.ns = ns.bytes, .keys = 1});
    request.Append(key);
    const local::Message reply = Ask(request);
    local::BodyReader body(reply.body);
    return local::ReadReplyStatus(&body);
  }

  local::Welcome welcome;

 private:
  local::Message Ask(local::MessageWriter& request) {
    REQUIRE(local::SendMessage(socket_.get(), request.Finish(), {}).ok());
    return Receive();
  }
  local::Message Receive() {
    auto packet = local::ReceivePacket(socket_.get(), buffer_, 0);
    REQUIRE(packet.ok());
    REQUIRE(packet->has_value());
    auto message = assembler_.Take((*packet)->bytes, std::move((*packet)->descriptors));
    REQUIRE(message.ok());
    REQUIRE(message->has_value());
    return **std::move(message);
  }

  const UniqueFd socket_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(local::kMaxPacketBytes);
  local::MessageAssembler assembler_;
  std::vector<UniqueFd> session_;
};

}  // namespace

TEST_CASE("a user who is not allowed is refused at both listeners, with the reason") {
  Site site(LocalSettings());
  site.settings.access = absl::StrCat("  allowed_uids: [", geteuid() + 1, "]\n");
  site.Start();
  for (const PathChoice choice : {PathChoice::kLocal, PathChoice::kGrpc, PathChoice::kAuto}) {
    INFO("path choice " << static_cast<int>(choice));
    const auto client = client::Client::Connect({.endpoint = site.endpoint(),
                                                 .default_deadline = client::Deadline(60'000),
                                                 .path = choice});
    REQUIRE(client.ok());
    CHECK_FALSE((*client)->connected());
    const absl::Status refused = (*client)->GetServerInfo().status();
    INFO(refused << ", " << (*client)->path().why);
    CHECK(absl::IsPermissionDenied(refused));
    CHECK(absl::StrContains(refused.message(), kNotAllowed));
    if (choice != PathChoice::kGrpc) CHECK(absl::StrContains((*client)->path().why, kNotAllowed));
  }
  const absl::Status answer = BareClient(site.local_socket()).Hello();
  CHECK(absl::IsPermissionDenied(answer));
  CHECK(absl::StrContains(answer.message(), absl::StrCat("uid=", geteuid())));
  for (const char* path : {"auto", "local", "grpc"}) {
    const std::string said = Ping(site, path);
    INFO(path << ": " << said);
    CHECK(absl::StrContains(said, kNotAllowed));
  }
  CHECK(site.Counter("local_refused_connections") > 0);
  CHECK(site.Counter("sessions_opened") == 0);
  CHECK(Eventually([&] { return site.Counter("local_open_connections") == 0; }));
}

TEST_CASE("another user is refused where only ours is allowed") {
  if (!CanBeSomebodyElse()) return;
  Site site(LocalSettings());
  site.settings.access =
      absl::StrCat("  allowed_uids: [", geteuid(), "]\n  socket_mode: \"0666\"\n");
  site.Start();
  REQUIRE(chmod(site.path("").c_str(), 0755) == 0);
  BareClient other(ConnectAs(kSomeUser, kSomeGroup, site.local_socket(), SOCK_SEQPACKET));
  const absl::Status refused = other.Hello();
  CHECK(absl::IsPermissionDenied(refused));
  CHECK(absl::StrContains(refused.message(), absl::StrCat("uid=", kSomeUser)));
  BareClient ours(site.local_socket());
  CHECK(ours.Hello().ok());
}

TEST_CASE("a tenant's client gets its own segments only, and cannot name another one's chunks") {
  Site site(LocalSettings());
  site.settings.segment_bytes = "4MiB";
  site.settings.extra =
      absl::StrCat("tenants:\n  - name: other\n    unix: ", site.path("other.sock"),
                   "\n    local: ", site.path("other-local.sock"), "\n    g2_share: 25%\n");
  site.Start();
  BareClient first(site.local_socket()), second(site.path("other-local.sock"));
  REQUIRE(first.Hello().ok());
  REQUIRE(second.Hello().ok());
  CHECK(first.welcome.segments == 12);
  CHECK(second.welcome.segments == 4);
  CHECK(second.welcome.first_segment == 12);
  std::set<ino_t> all = first.Segments();
  all.merge(second.Segments());
  CHECK(all.size() == 16);  // no session with both

  Engine mine(site);
  const std::vector<TestChunk> chunks = Chunks(1, 3, 100'000);
  REQUIRE(mine.PutAll(chunks));
  const absl::Status named = second.Lookup(mine.ns().digest(), Key(1));
  INFO(named);
  CHECK_FALSE(named.ok());
  auto theirs = client::Client::Connect({.endpoint = "unix://" + site.path("other.sock"),
                                         .default_deadline = client::Deadline(60'000),
                                         .path = PathChoice::kLocal,
                                         .local_socket = site.path("other-local.sock")});
  REQUIRE(theirs.ok());
  const auto ns = (*theirs)->OpenNamespace(Engine::DefaultSpec());
  REQUIRE(ns.ok());
  const std::vector<ChunkKey> keys = KeysOf(chunks);
  const auto found = (*theirs)->Lookup(*ns, keys);
  REQUIRE(found.ok());
  CHECK(found->leading_keys == 0);
  CHECK(*(*theirs)->Delete(*ns, keys) == 0);
  CHECK((*theirs)->Acquire(*ns, keys, {.all_present = true})->chunks.empty());
  CHECK(mine.Hits(chunks) == 3);
  CHECK(mine.wrong_bytes == 0);
}

TEST_CASE("a TCP client that asks for the local path is told why there is none") {
  Site site(LocalSettings());
  site.settings.tcp = absl::StrCat("127.0.0.1:", FreePort());
  site.Start();
  const absl::Status refused =
      client::Client::Connect({.endpoint = site.settings.tcp, .path = PathChoice::kLocal}).status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(absl::StrContains(refused.message(), "Unix socket"));
  const auto client = client::Client::Connect(
      {.endpoint = site.settings.tcp, .default_deadline = client::Deadline(60'000)});
  REQUIRE(client.ok());
  CHECK((*client)->GetServerInfo().ok());
  CHECK((*client)->path().why == "grpc: the endpoint is TCP");
  const auto ns = (*client)->OpenNamespace(Engine::DefaultSpec());
  REQUIRE(ns.ok());
  const ChunkKey key = Key(1);
  const auto acquired = (*client)->Acquire(*ns, absl::MakeSpan(&key, 1));
  CHECK(absl::IsFailedPrecondition(acquired.status()));
  CHECK(absl::StrContains(acquired.status().message(), "local path"));
}

TEST_CASE("names that are not UTF-8 are refused by the name, and the operator sees who is there") {
  Site site(LocalSettings());
  site.Start();
  BareClient unnamable(site.local_socket());
  const absl::Status refused = unnamable.Hello("caf\xe9");
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(absl::StrContains(refused.message(), "client_name is not UTF-8"));
  BareClient named(site.local_socket());
  REQUIRE(named.Hello("caf\xc3\xa9").ok());
  named.Segments();
  const absl::Status no_model = named.OpenNamespace("model \xff");
  CHECK(absl::IsInvalidArgument(no_model));
  CHECK(absl::StrContains(no_model.message(), "model is not UTF-8"));
  REQUIRE(named.OpenNamespace("model \xe2\x82\xac").ok());
  const auto status = site.admin()->Status();
  INFO(status.status());
  REQUIRE(status.ok());
  REQUIRE(status->sessions_size() == 1);
  CHECK(status->sessions(0).client_name() == "caf\xc3\xa9");
  for (const char* verb : {"status", "--json status", "namespaces", "--json namespaces",
                           "top --interval 1ms --count 1"}) {
    const Outcome outcome = RunShell(
        absl::StrCat("'", KVKEEP_PATH, "' --admin unix://", site.admin_socket(), " ", verb));
    INFO(verb << ": " << outcome.output);
    CHECK(outcome.status == 0);
  }
}

TEST_CASE("10,000 connects leave no descriptor behind, on neither side") {
  Settings settings = LocalSettings();
  settings.dumpable = true;  // its descriptors are counted
  Site site(settings);
  site.Start();
  const uint64_t daemon = site.Status().pid();
  Descriptors theirs, ours;
  for (int i = 0; i < kConnects; ++i) {
    if (i == 50) {  // what is opened once is open now
      REQUIRE(Eventually([&] {  // other threads close their sockets
        return site.Counter("local_open_connections") == 0 &&
               site.Counter("local_closing_descriptors") == 0;
      }));
      theirs = DescriptorsOf(daemon, site.path(""));
      ours = DescriptorsOf(static_cast<uint64_t>(getpid()), site.path(""));
    }
    if (i % 4 == 0) {  // leaves before it sent anything
      REQUIRE(ConnectTo(site.local_socket(), SOCK_SEQPACKET).valid());
      continue;
    }
    const auto greeting =
        client::Greet({.socket = site.local_socket(),
                       .client_name = "guest",
                       .known_arena = nullptr,
                       .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10)});
    INFO(greeting.status() << " at connect " << i);
    REQUIRE(greeting.ok());
  }
  REQUIRE(Eventually([&] { return site.Counter("local_open_connections") == 0; }));
  Descriptors theirs_now;
  const bool all_closed = Eventually([&] {
    theirs_now = DescriptorsOf(daemon, site.path(""));
    return theirs_now.count <= theirs.count;
  });
  const Descriptors ours_now = DescriptorsOf(static_cast<uint64_t>(getpid()), site.path(""));
  INFO("daemon: " << theirs.names << "then " << theirs_now.names << "here: " << ours.names
                  << "then " << ours_now.names);
  CHECK(all_closed);
  CHECK(ours_now.count <= ours.count);
  CHECK(site.Counter("local_connections") == kConnects);
  CHECK(site.Counter("sessions_opened") == site.Counter("sessions_closed"));
}

}  // namespace kvkeep::e2e
