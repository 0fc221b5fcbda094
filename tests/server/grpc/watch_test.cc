// Watch: chunks that enter and leave the tiers, over gRPC.
#include <catch2/catch.hpp>
#include <set>

#include "tests/server/grpc/service_harness.h"

namespace kvkeep {
namespace {

// One Watch call, and the changes that it has reported so far.
class Watcher {
 public:
  explicit Watcher(const TestClient& client) {
    v1::WatchRequest request;
    request.set_session_token(client.session);
    request.set_namespace_digest(client.ns);
    call_ = client.stub->Watch(&context_, request);
  }
  ~Watcher() {
    context_.TryCancel();
    if (call_ != nullptr) call_->Finish();
  }

  // Reads until `condition` holds; returns false if the call ends before.
  template <typename F>
  bool Until(F condition) {
    while (!condition()) {
      v1::WatchEvents message;
      if (!call_->Read(&message)) return false;
      Apply(message);
    }
    return true;
  }
  // Returns the tiers that the chunk is in: "", "2", "3", "23".
  std::string Where(int key) const {
    std::string where;
    for (const char tier : {'2', '3'}) {
      if (there_.contains({TestKey(key), tier})) where += tier;
    }
    return where;
  }
  grpc::Status Finish() {
    v1::WatchEvents message;
    while (call_->Read(&message)) Apply(message);
    return std::exchange(call_, nullptr)->Finish();
  }

  uint64_t epoch = 0, gaps = 0;
  bool whole = false;

 private:
  void Apply(const v1::WatchEvents& message) {
    const auto events = static_cast<size_t>(message.changes_size());
    REQUIRE(message.keys().size() == events * 32);
    REQUIRE(static_cast<size_t>(message.parts_size()) == events);
    CHECK(message.sequence() == next_);
    next_ += events;
    epoch = message.epoch();
    whole = whole || message.snapshot_end();
    if (message.gap()) {
      ++gaps;
      there_.clear();
    }
    for (size_t i = 0; i < events; ++i) {
      const v1::ChunkChange change = message.changes(static_cast<int>(i));
      const bool g2 = change == v1::CHUNK_CHANGE_G2_STORED || change == v1::CHUNK_CHANGE_G2_REMOVED;
      const std::pair at(message.keys().substr(i * 32, 32), g2 ? '2' : '3');
      if (change == v1::CHUNK_CHANGE_G2_STORED || change == v1::CHUNK_CHANGE_G3_STORED) {
        there_.insert(at);
      } else {
        there_.erase(at);
      }
    }
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchEvents>> call_;
  std::set<std::pair<std::string, char>> there_;
  uint64_t next_ = 0;
};

}  // namespace

TEST_CASE(
    "a watch tells of what is there, then of what comes and goes, and again after a restart") {
  TestDaemon daemon;
  uint64_t epoch = 0;
  {
    const TestClient client(daemon);
    REQUIRE(client.PutChunk(1, "first").status() == v1::PUT_STATUS_STORED);
    Watcher watcher(client);
    REQUIRE(watcher.Until([&] { return watcher.whole && watcher.Where(1) == "23"; }));
    CHECK(watcher.gaps == 1);
    epoch = watcher.epoch;
    REQUIRE(client.PutChunk(2, "second").status() == v1::PUT_STATUS_STORED);
    REQUIRE(watcher.Until([&] { return watcher.Where(2) == "23"; }));
    v1::DeleteResponse deleted;
    grpc::ClientContext context;
    REQUIRE(client.stub->Delete(&context, client.About<v1::DeleteRequest>({1}), &deleted).ok());
    REQUIRE(watcher.Until([&] { return watcher.Where(1).empty(); }));
    CHECK(watcher.Where(2) == "23");
    CHECK(watcher.gaps == 1);
  }
  daemon.Stop();
  daemon.Start();
  const TestClient client(daemon);
  Watcher watcher(client);
  REQUIRE(watcher.Until([&] { return watcher.whole && watcher.Where(2) == "3"; }));
  CHECK(watcher.Where(1).empty());
  CHECK(watcher.epoch != epoch);
}

TEST_CASE("a watch tells of its own namespace alone, and ends with its session") {
  TestDaemon daemon;
  const TestClient client(daemon);
  const TestClient other(daemon.Channel(), /*bytes_per_part=*/5);
  TestClient watching(daemon);
  Watcher watcher(watching);
  REQUIRE(watcher.Until([&] { return watcher.whole; }));
  REQUIRE(other.PutChunk(7, "other").status() == v1::PUT_STATUS_STORED);
  REQUIRE(client.PutChunk(1, "mine").status() == v1::PUT_STATUS_STORED);
  REQUIRE(watcher.Until([&] { return watcher.Where(1) == "23"; }));
  CHECK(watcher.Where(7).empty());
  watching.EndSession();
  CHECK(watcher.Finish().error_code() == grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_CASE("a watch without a session, or in a namespace that it did not open, is refused") {
  const TestDaemon daemon;
  TestClient client(daemon);
  const std::string session = client.session;
  client.ns = std::string(16, 'x');
  CHECK(Watcher(client).Finish().error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  client.ns = "short";
  CHECK(Watcher(client).Finish().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  client.session = std::string(16, 'x');  // the owner is checked before the request
  CHECK(Watcher(client).Finish().error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  client.session = "short";
  CHECK(Watcher(client).Finish().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("a daemon stops while it is watched") {
  TestDaemon daemon;
  const TestClient client(daemon);
  Watcher watcher(client);
  REQUIRE(watcher.Until([&] { return watcher.whole; }));
  daemon.Stop();
  CHECK_FALSE(watcher.Finish().ok());
}

}  // namespace kvkeep
