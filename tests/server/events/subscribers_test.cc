// The publisher's sockets, and messages that wait for routers that do not read.
#include "server/events/subscribers.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <deque>
#include <filesystem>
#include <fstream>

#include "tests/fakes/scratch_dir.h"
#include "tests/server/events/zmq_socket.h"

namespace kvkeep {
namespace {

constexpr uint64_t kLimit = kMiB;
constexpr std::chrono::milliseconds kPatience{10'000};

struct Rig {
  explicit Rig(uint64_t first = 1) {
    auto opened = Subscribers::Open(
        {.endpoint = endpoint, .replay_endpoint = endpoint + "-replay", .queued_bytes = kLimit},
        first);
    INFO(opened.status());
    REQUIRE(opened.ok());
    sockets = *std::move(opened);
  }
  void AwaitSubscriptions(uint64_t count) const {
    while (sockets->count() < count) REQUIRE(sockets->Wait(-1, kPatience).joined);
  }
  void PublishMany() const {
    for (int i = 0; i < 50; ++i) sockets->Publish(std::string(kMessageBytes, 'x'));
  }

  const ScratchDir dir;
  const std::string endpoint = "ipc://" + (dir / "events");
  std::unique_ptr<Subscribers> sockets;
};

}  // namespace

TEST_CASE("one who does not read holds less than all may; many are let go, who reads comes back") {
  const Rig rig;
  Socket reads(ZMQ_SUB, rig.endpoint);
  rig.AwaitSubscriptions(1);
  std::deque<Socket> idle;
  uint64_t most = 0;
  while (!rig.sockets->over_limit()) {
    REQUIRE(idle.size() < 50);
    idle.emplace_back(ZMQ_SUB, rig.endpoint, /*received=*/1);
    rig.AwaitSubscriptions(idle.size() + 1);
    rig.PublishMany();  // the others wait for this, this one does not
    if (idle.size() == 1) CHECK_FALSE(rig.sockets->over_limit());
    most = std::max(most, rig.sockets->queued_bytes());
  }
  CHECK(most < 2 * kLimit);
  CHECK(idle.size() > 2);

  CHECK(rig.sockets->DropAll() == idle.size() + 1);
  CHECK(rig.sockets->count() == 0);
  CHECK(rig.sockets->queued_bytes() == 0);
  // A socket subscribes again only when its owner polls it.
  for (int i = 0; i < 1'000 && rig.sockets->count() == 0; ++i) {
    reads.Look();
    rig.sockets->Wait(-1, std::chrono::milliseconds(10));
  }
  CHECK(rig.sockets->count() == 1);
  for (int i = 0; i < 10; ++i) rig.PublishMany();
  CHECK_FALSE(rig.sockets->over_limit());
}

TEST_CASE("who reads gets every message, and nothing waits for it in the end") {
  const Rig rig(7);
  Socket reader(ZMQ_SUB, rig.endpoint);
  rig.AwaitSubscriptions(1);
  for (uint64_t number = 7; number < 107; ++number) {
    rig.sockets->Wait(-1, std::chrono::milliseconds(0));  // as the publisher does
    rig.sockets->Publish(std::string(kMessageBytes, 'x'));
    const std::vector<std::string> frames = reader.Receive();
    REQUIRE(frames.size() == 3);
    CHECK(FromBigEndian(frames[1]) == number);
    CHECK(frames[2].size() == kMessageBytes);
  }
  // ZeroMQ releases the last one on a thread of its own, soon: when the next one is sent.
  while (rig.sockets->queued_bytes() > kMessageBytes) {
    rig.sockets->Wait(-1, std::chrono::milliseconds(0));
    rig.sockets->Publish("");
    REQUIRE(reader.Receive().size() == 3);
  }
  CHECK_FALSE(rig.sockets->over_limit());
}

TEST_CASE("what was published is answered again after all were let go, by the old numbers") {
  const Rig rig;
  rig.sockets->Publish("first");
  CHECK(rig.sockets->DropAll() == 0);
  rig.sockets->Publish("second");
  Socket asks(ZMQ_DEALER, rig.endpoint + "-replay");
  asks.Send({"", std::string(8, '\0')});
  while (rig.sockets->Wait(-1, kPatience).replays == 0) {
  }
  CHECK(asks.Receive().at(3) == "first");
  CHECK(asks.Receive().at(3) == "second");
  CHECK(asks.Receive().at(3).empty());
}

TEST_CASE("what waits for who asks again and does not read is counted once, and bounded") {
  const Rig rig;
  rig.PublishMany();
  CHECK(rig.sockets->queued_bytes() == 0);
  std::deque<Socket> idle;
  const auto ask = [&](Socket& asks) {
    asks.Send({"", std::string(8, '\0')});
    while (rig.sockets->Wait(-1, kPatience).replays == 0) {
    }
  };
  const auto join = [&] {
    ask(idle.emplace_back(ZMQ_DEALER, rig.endpoint + "-replay", /*received=*/1));
    for (int i = 0; i < 9; ++i) ask(idle.back());
  };
  // The same messages, however many wait for them.
  const uint64_t kept = kMessageBytes * QueuedMessages({.queued_bytes = kLimit}) / 2;
  for (int i = 0; i < 5; ++i) {
    join();
    CHECK(rig.sockets->queued_bytes() <= kept);
  }
  CHECK(rig.sockets->queued_bytes() > 0);
  // Each has messages of its own now, which no other subscriber holds any more.
  while (!rig.sockets->over_limit()) {
    REQUIRE(idle.size() < 50);
    rig.PublishMany();
    join();
  }
  CHECK(rig.sockets->queued_bytes() < 2 * kLimit);
  rig.sockets->DropAll();
  CHECK(rig.sockets->queued_bytes() == 0);
}

TEST_CASE("a path that is somebody's, or no socket's, is left alone, and its key named") {
  const Rig rig;
  const std::string path = rig.dir / "events", file = rig.dir / "file";
  const auto error = [](const std::string& endpoint, const std::string& replay) {
    const auto opened = Subscribers::Open({.endpoint = endpoint, .replay_endpoint = replay}, 1);
    return std::string(opened.status().message());
  };
  CHECK(absl::StrContains(error(rig.endpoint, ""), "zmq: " + path + ": in use by another daemon"));
  std::ofstream(file) << "precious";
  CHECK(absl::StrContains(error("ipc://" + (rig.dir / "new"), "ipc://" + file),
                          "zmq_replay: " + file + ": is there and not a socket"));
  CHECK(std::filesystem::file_size(file) == 8);
  CHECK(absl::StrContains(error("tcp://256.0.0.1:1", ""), "zmq: tcp://256.0.0.1:1: "));
}

TEST_CASE("an ipc endpoint's file has the mode asked for, also after all were let go") {
  const ScratchDir dir;
  const std::string path = dir / "events";
  const auto mode = [&] { return std::filesystem::status(path).permissions(); };
  auto opened = Subscribers::Open({.endpoint = "ipc://" + path, .ipc_mode = 0620}, 1);
  REQUIRE(opened.ok());
  CHECK(mode() == std::filesystem::perms{0620});
  (*opened)->DropAll();
  CHECK(mode() == std::filesystem::perms{0620});
  Socket reader(ZMQ_SUB, "ipc://" + path);
  CHECK((*opened)->Wait(-1, kPatience).joined);
}

TEST_CASE("one subscriber's queue is a quarter of what all may have") {
  CHECK(QueuedMessages({.queued_bytes = 256 * kMiB}) == 1024);
  CHECK(QueuedMessages({.queued_bytes = kMiB}) == 4);
  CHECK(QueuedMessages({.queued_bytes = 1}) == 1);
}

}  // namespace kvkeep
