// One connection of the bulk door by itself, over a store in memory.
#include "server/bulk/connection.h"

#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>

#include "kvkeep/v1/bulk.pb.h"
#include "tests/sim/world.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

using bulk::FrameKind;

class Anybody final : public BulkCaller {
 public:
  absl::StatusOr<TenantId> Admit(const ShownCertificate&, const std::string&) override {
    return TenantId();
  }
  std::string name() const override { return "anybody"; }
};

// A connection whose client and loop act only when the test says so. Its socket takes few answers.
class LoneConnection {
 public:
  LoneConnection() {
    world_.Start();
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    client_ = UniqueFd(pair[0]);
    UniqueFd daemon(pair[1]);
    constexpr int kFewBytes = 4096;
    REQUIRE(setsockopt(daemon.get(), SOL_SOCKET, SO_SNDBUF, &kFewBytes, sizeof(kFewBytes)) == 0);
    connection_ = std::make_shared<BulkConnection>(
        BulkConnection::Deps{.store = &world_.store(),
                             .state = &state_,
                             .memory = &memory_,
                             .scratch = scratch_,
                             .loop = loop_,
                             .on_closed = [](uint64_t) {}},
        1, MakeSocketStream(std::move(daemon), 0), std::make_unique<Anybody>());
    REQUIRE(connection_->Start().ok());
  }
  ~LoneConnection() {
    connection_->Close();
    loop_->Close();
  }

  BulkConnection& connection() { return *connection_; }
  void Say(const std::string& bytes) {
    REQUIRE(send(client_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  void Turn(int times) {
    for (int i = 0; i < times && !connection_->closed(); ++i) {
      loop_->RunOnce(std::chrono::milliseconds(0), [this](uint64_t, uint32_t events) {
        if (!connection_->closed()) connection_->OnEvent(events);
      });
    }
  }
  // Returns what came.
  std::string Read() {
    std::string all;
    std::array<char, 4096> buffer;
    for (ssize_t came = 1; came > 0;) {
      came = recv(client_.get(), buffer.data(), buffer.size(), 0);
      if (came > 0) all.append(buffer.data(), static_cast<size_t>(came));
    }
    return all;
  }

 private:
  World world_{WorldOptions()};
  ServerState state_{"test", &world_.clock()};
  BulkMemory memory_;
  std::vector<std::byte> scratch_ = std::vector<std::byte>(4096);
  const std::shared_ptr<EventLoop> loop_ = EventLoop::Create(std::chrono::microseconds(0)).value();
  UniqueFd client_;
  std::shared_ptr<BulkConnection> connection_;
};

size_t CountFrames(const std::string& bytes) {
  size_t frames = 0;
  for (size_t at = 0; at + bulk::kHeadBytes <= bytes.size(); ++frames) {
    const bulk::FrameHead head =
        bulk::DecodeHead(std::as_bytes(std::span(bytes)).subspan(at).first<bulk::kHeadBytes>());
    at += bulk::kHeadBytes + head.message_bytes + head.payload_bytes;
  }
  return frames;
}

TEST_CASE("a connection that ends soon serves no call that was sent ahead") {
  constexpr size_t kCalls = 300;
  LoneConnection lone;
  v1::BulkHello hello;
  hello.set_min_version(1);
  hello.set_max_version(1);
  const std::string message = hello.SerializeAsString();
  std::string said = bulk::EncodeHead(FrameKind::kHello, message.size(), 0) + message;
  for (size_t i = 0; i < kCalls; ++i) said += bulk::EncodeHead(FrameKind::kGet, 0, 0);
  lone.Say(said);
  lone.Turn(kCalls);  // until the socket takes no more answers
  lone.connection().EndSoon();
  CHECK_FALSE(lone.connection().closed());  // the last answer is on its way
  std::string answers;
  for (size_t i = 0; i < kCalls; ++i) {
    answers += lone.Read();
    lone.Turn(4);
  }
  answers += lone.Read();
  CHECK(lone.connection().closed());
  CHECK(CountFrames(answers) > 1);
  CHECK(CountFrames(answers) < kCalls / 2);
}

}  // namespace
}  // namespace kvkeep
