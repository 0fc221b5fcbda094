// Watch against a fake daemon that sends given events, breaks the protocol, refuses, dies and comes
// back. tests/e2e/watch_test.cc has the real daemon.
#include "client/watch.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/client/fixture.h"

namespace kvkeep::client {
namespace {

constexpr Deadline kLong{20'000};

v1::WatchEvents Message(uint64_t sequence, const std::vector<std::string>& keys,
                        v1::ChunkChange change = v1::CHUNK_CHANGE_G2_STORED) {
  v1::WatchEvents message;
  message.set_epoch(7);
  message.set_sequence(sequence);
  for (const std::string& key : keys) {
    message.mutable_keys()->append(Key(key).view().data(), ChunkKey::kSize);
    message.add_parts(1);
    message.add_changes(change);
  }
  return message;
}

v1::WatchEvents First(v1::WatchEvents message) {
  message.set_gap(true);
  return message;
}

// A fake daemon that sends these messages to every watch, and a watch of it.
struct Rig {
  explicit Rig(std::vector<v1::WatchEvents> messages, const std::string& model = "m") {
    Tell(std::move(messages));
    Open(model);
  }
  explicit Rig(fakes::FakeKvService::WatchHandler handler) {
    daemon.kv.OnWatch(std::move(handler));
    Open("m");
  }
  void Open(const std::string& model) {
    auto opened = Watch::Open(
        {.client = {.endpoint = daemon.endpoint(), .default_deadline = Deadline(60'000)},
         .ns = {.model = model, .tokens_per_chunk = 16, .parts = 2}});
    REQUIRE(opened.ok());
    watch = *std::move(opened);
  }
  void Tell(std::vector<v1::WatchEvents> messages) {
    daemon.kv.OnWatch([messages](auto*, auto* writer) {
      for (const v1::WatchEvents& message : messages) writer->Write(message);
      return grpc::Status::OK;
    });
  }
  WatchNews Next() const {
    absl::StatusOr<WatchNews> news = watch->Next(kLong);
    INFO(news.status());
    REQUIRE(news.ok());
    return *std::move(news);
  }

  fakes::FakeDaemon daemon;  // first: it is destroyed last
  std::unique_ptr<Watch> watch;
};

}  // namespace

TEST_CASE("a watch hands over messages in their order, and says when a snapshot is whole") {
  v1::WatchEvents last = Message(3, {"c"}, v1::CHUNK_CHANGE_G3_REMOVED);
  last.set_snapshot_end(true);
  const Rig rig(
      {First(Message(0, {"a", "b"})), Message(2, {"c"}, v1::CHUNK_CHANGE_G3_STORED), last});
  const WatchNews first = rig.Next();
  CHECK(first.begins == WatchBegin::kFirst);
  CHECK(first.epoch == 7);
  CHECK(first.sequence == 0);
  CHECK_FALSE(first.snapshot_end);
  CHECK(first.events ==
        std::vector<WatchEvent>{{.key = Key("a"), .part = 1, .tier = Tier::kG2, .stored = true},
                                {.key = Key("b"), .part = 1, .tier = Tier::kG2, .stored = true}});
  const WatchNews second = rig.Next();
  CHECK(second.begins == WatchBegin::kNo);
  CHECK(second.events[0] ==
        WatchEvent{.key = Key("c"), .part = 1, .tier = Tier::kG3, .stored = true});
  const WatchNews third = rig.Next();
  CHECK(third.snapshot_end);
  CHECK(third.sequence == 3);
  CHECK_FALSE(third.events[0].stored);
  CHECK(absl::IsDeadlineExceeded(rig.watch->Next(Deadline(10)).status()));
  const Watch::Stats stats = rig.watch->GetStats();
  CHECK(stats.connects == 1);
  CHECK(stats.begins == 1);
  CHECK(stats.events == 4);
}

TEST_CASE("who reads too slowly is told that all begins anew, and a change unknown here is none") {
  const Rig rig({First(Message(0, {"a"})), First(Message(1, {"b"})),
                 Message(2, {"x"}, static_cast<v1::ChunkChange>(77)), Message(3, {"c"})});
  CHECK(rig.Next().begins == WatchBegin::kFirst);
  const WatchNews again = rig.Next();
  CHECK(again.begins == WatchBegin::kMissed);
  CHECK(again.events.size() == 1);
  CHECK(rig.Next().events.empty());
  CHECK(rig.Next().events.size() == 1);
  CHECK(rig.watch->GetStats().begins == 2);
}

TEST_CASE("a stream that breaks the protocol is given up, and a new one taken") {
  v1::WatchEvents short_keys = Message(1, {"b"});
  short_keys.mutable_keys()->pop_back();
  v1::WatchEvents no_part = Message(1, {"b"});
  no_part.clear_parts();
  const v1::WatchEvents good = First(Message(0, {"a"}));
  const std::vector<std::vector<v1::WatchEvents>> broken = {
      {good, Message(2, {"b"})},  // one was left out
      {good, Message(0, {"a"})},  // told twice
      {good, short_keys},
      {good, no_part},
  };
  for (const auto& messages : broken) {
    CAPTURE(&messages - broken.data());
    Rig rig(messages);
    CHECK(rig.Next().begins == WatchBegin::kFirst);
    const absl::Status gone = rig.watch->Next(kLong).status();
    CHECK(absl::IsUnavailable(gone));
    CHECK(gone.message().find("Watch: ") != absl::string_view::npos);
    CHECK(rig.Next().begins == WatchBegin::kReconnected);
    CHECK(rig.watch->GetStats().broken_streams >= 1);
  }
  const Rig headless(std::vector{Message(0, {"a"})});
  CHECK(absl::IsUnavailable(headless.watch->Next(kLong).status()));
  CHECK(headless.watch->GetStats().connects == 0);
}

TEST_CASE("a watched daemon that goes away is told of once, and found again") {
  Rig rig(std::vector{First(Message(0, {"a"}))});
  CHECK(rig.Next().begins == WatchBegin::kFirst);
  rig.daemon.Stop();
  CHECK(absl::IsUnavailable(rig.watch->Next(kLong).status()));
  CHECK(absl::IsUnavailable(rig.watch->Next(Deadline(1)).status()));  // still, after a wait
  v1::WatchEvents message = First(Message(0, {"b"}));
  message.set_epoch(8);
  rig.Tell({message});
  rig.daemon.Start();
  const WatchNews news = rig.Next();
  CHECK(news.begins == WatchBegin::kNewDaemon);
  CHECK(news.events[0].key == Key("b"));
  CHECK(rig.watch->GetStats().connects == 2);
}

TEST_CASE("what the daemon refuses is told as it says it, and asked again") {
  const Rig bad_namespace({First(Message(0, {"a"}))}, "refused");
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused = bad_namespace.watch->Next(kLong).status();
    CHECK(absl::IsInvalidArgument(refused));
    CHECK(refused.message() == "model: refused by the fake");
  }
  Rig full([](auto*, auto*) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "watches: 64 are open");
  });
  CHECK(absl::IsResourceExhausted(full.watch->Next(kLong).status()));
  full.Tell({First(Message(0, {"a"}))});
  absl::StatusOr<WatchNews> news = full.watch->Next(kLong);
  while (!news.ok()) news = full.watch->Next(kLong);
  CHECK(news->begins == WatchBegin::kFirst);
}

TEST_CASE("a daemon that takes the call and sends nothing is away, and is asked again") {
  fakes::FakeDaemon daemon;
  daemon.kv.OnWatch([](auto*, auto*) { return grpc::Status::OK; });  // and stays
  const auto watch =
      Watch::Open({.client = {.endpoint = daemon.endpoint(), .default_deadline = Deadline(500)},
                   .ns = {.model = "m", .tokens_per_chunk = 16}});
  REQUIRE(watch.ok());
  absl::Status silent;
  do silent = (*watch)->Next(kLong).status();  // other steps may be late on a busy machine
  while (!absl::StrContains(silent.message(), "no first message") && absl::IsUnavailable(silent));
  CHECK(absl::StrContains(silent.message(), "no first message of the watch by the deadline"));
  CHECK((*watch)->GetStats().connects == 0);
  const v1::WatchEvents first = First(Message(0, {"a"}));
  daemon.kv.OnWatch([first](auto*, auto* writer) {
    writer->Write(first);
    return grpc::Status::OK;
  });
  absl::StatusOr<WatchNews> news = (*watch)->Next(kLong);
  while (!news.ok() && absl::IsUnavailable(news.status())) news = (*watch)->Next(kLong);
  REQUIRE(news.ok());
  CHECK(news->begins == WatchBegin::kFirst);
}

TEST_CASE("a watch that is cancelled ends, whether it waits, was told or never connected") {
  const Rig waiting(std::vector{First(Message(0, {"a"}))});
  CHECK(waiting.Next().events.size() == 1);
  std::thread other([&] { waiting.watch->Cancel(); });
  CHECK(absl::IsCancelled(waiting.watch->Next(kLong).status()));
  other.join();
  CHECK(absl::IsCancelled(waiting.watch->Next(kLong).status()));

  const Rig untaken({First(Message(0, {"a"})), Message(1, {"b"}), Message(2, {"c"})});
  CHECK(untaken.Next().events.size() == 1);  // and goes with the rest not taken

  fakes::FakeDaemon hangs;
  hangs.kv.script.hang_session = true;
  const auto never = Watch::Open(
      {.client = {.endpoint = hangs.endpoint()}, .ns = {.model = "m", .tokens_per_chunk = 16}});
  REQUIRE(never.ok());
  CHECK(absl::IsUnavailable((*never)->Next(Deadline(1)).status()));
  CHECK(absl::IsInvalidArgument(Watch::Open({.client = {.endpoint = ""}}).status()));
  CHECK(absl::IsInvalidArgument(
      Watch::Open({.client = {.endpoint = "unix:///x", .path = PathChoice::kLocal}}).status()));
}

}  // namespace kvkeep::client
