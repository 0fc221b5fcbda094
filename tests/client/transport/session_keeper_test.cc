// The keeper of a session, over a transport whose sessions a test opens and ends.

#include "client/transport/session_keeper.h"

#include <catch2/catch.hpp>
#include <map>

#include "tests/server/soon.h"

namespace kvkeep::client {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

struct FakeSession {
  uint64_t number = 0;
  std::atomic<bool> ended{false};
  uint64_t epoch() const { return number; }
  bool over() const { return ended; }
};

// Sessions last until a test ends them. While `away`, none can be opened.
class FakeTransport : public SessionKeeper<FakeSession>::Opener {
 public:
  using Keeper = SessionKeeper<FakeSession>;

  explicit FakeTransport(Deadline backoff = Deadline(4))
      : keeper_({.where = "a daemon",
                 .default_deadline = Deadline(1000),
                 .backoff_min = backoff / 4,
                 .backoff_max = backoff},
                this) {
    keeper_.Start();
  }
  ~FakeTransport() override { Stop(); }
  void Stop() {
    if (std::exchange(stopped_, true)) return;
    for (const auto& session : keeper_.Stop()) session->ended = true;
    held = hung = false;
    keeper_.Join();
  }

  Keeper& keeper() { return keeper_; }
  std::shared_ptr<FakeSession> Open() {
    REQUIRE(keeper_.WaitConnected(10s));
    return *keeper_.Current();
  }
  int asked(const std::string& model) {
    MutexLock lock(&mu_);
    return asked_[model];
  }

  std::atomic<bool> away{false};
  std::atomic<bool> silent{false};   // the daemon answers for no namespace
  std::atomic<bool> refuses{false};  // or refuses each
  std::atomic<bool> hung{false};     // nor does the call return, until the session ends
  std::atomic<bool> held{false};     // the keeper's thread does not notice the end of a session
  std::atomic<int> unprepared{0};    // this many tries to publish fail
  std::atomic<int> attempts{0};
  std::atomic<int> rests{0};

 private:
  absl::Status RunSession(uint64_t epoch) override {
    ++attempts;
    if (away) return absl::UnavailableError("nobody listens");
    const auto session = std::make_shared<FakeSession>();
    session->number = epoch;
    KVKEEP_RETURN_IF_ERROR(keeper_.Begin(session));
    while (true) {
      const absl::StatusOr<bool> published =
          keeper_.Publish(session, {.max_keys_per_call = 7}, [&] { return unprepared-- <= 0; });
      KVKEEP_RETURN_IF_ERROR(published.status());
      if (*published) break;
    }
    while (!session->ended || held) std::this_thread::yield();
    keeper_.Withdraw();
    return absl::UnavailableError("the session ended");
  }
  Keeper::Time Rest(Keeper::Time now) override {
    ++rests;
    return now + 1ms;
  }
  absl::StatusOr<NamespaceDigest> AskToOpen(const std::shared_ptr<FakeSession>& session,
                                            const NamespaceSpec& spec,
                                            Deadline /*deadline*/) override {
    while (hung && !session->ended) std::this_thread::yield();
    MutexLock lock(&mu_);
    ++asked_[spec.model];
    if (silent) return absl::DeadlineExceededError("no answer");
    if (refuses) return absl::PermissionDeniedError("not yours");
    NamespaceDigest digest;
    digest.bytes[0] = static_cast<uint8_t>(session->epoch());
    return digest;
  }

  bool stopped_ = false;
  Mutex mu_;
  std::map<std::string, int> asked_ ABSL_GUARDED_BY(mu_);
  Keeper keeper_;
};

NamespaceSpec ModelNamed(const std::string& model) {
  return {.model = model, .tokens_per_chunk = 16};
}

}  // namespace

TEST_CASE("a session is opened anew when it ends, under the next number") {
  FakeTransport transport;
  CHECK(transport.keeper().WaitFirstAttempt(10s) == absl::OkStatus());
  const auto first = transport.Open();
  CHECK(first->epoch() == 1);
  CHECK(transport.keeper().limits().max_keys_per_call == 7);
  first->ended = true;
  const auto second = transport.Open();
  CHECK(second->epoch() == 2);
  ClientStats stats;
  transport.keeper().AddStats(&stats);
  CHECK(stats.sessions_opened == 2);
  CHECK(stats.calls >= 2);
}

TEST_CASE("while there is no session, calls are told why at once, and tries go on") {
  FakeTransport transport;
  transport.Open();
  transport.away = true;
  transport.Open()->ended = true;
  CHECK(Soon([&] { return !transport.keeper().why_away().ok(); }));
  CHECK(Soon([&] { return transport.attempts > 4; }));
  const absl::Status away = transport.keeper().Current().status();
  CHECK(absl::IsUnavailable(away));
  CHECK_THAT(std::string(away.message()), Contains("a daemon") && Contains("nobody listens"));
  CHECK_FALSE(transport.keeper().WaitConnected(20ms));
  CHECK(transport.keeper().session() == nullptr);
  CHECK(transport.rests > 0);
  transport.away = false;
  CHECK(transport.keeper().WaitConnected(10s));
}

TEST_CASE("a session that is over is given to no call, before its thread has seen that") {
  FakeTransport transport;
  const auto session = transport.Open();
  transport.held = true;
  session->ended = true;
  CHECK(transport.keeper().session() == session);
  CHECK_FALSE(transport.keeper().Current().ok());
  CHECK_FALSE(transport.keeper().WaitConnected(1ms));
  transport.held = false;
  CHECK(transport.keeper().WaitConnected(10s));
}

TEST_CASE("namespaces are declared in each session before calls have it") {
  FakeTransport transport;
  FakeTransport::Keeper::Undeclared undeclared;
  const auto first = transport.Open();
  const auto ns = transport.keeper().OpenNamespace(ModelNamed("m"), 1s, &undeclared);
  REQUIRE(ns.ok());
  CHECK(undeclared.session == nullptr);
  CHECK(transport.keeper().Prepare(*ns)->digest.bytes[0] == 1);
  first->ended = true;
  transport.Open();
  const auto ready = transport.keeper().Prepare(*ns);
  REQUIRE(ready.ok());
  CHECK(ready->session->epoch() == 2);
  CHECK(ready->digest.bytes[0] == 2);
  CHECK(transport.asked("m") == 2);
}

TEST_CASE("a refused namespace is forgotten; one that got no answer is kept and told of") {
  FakeTransport transport;
  const auto session = transport.Open();
  FakeTransport::Keeper::Undeclared undeclared;
  transport.refuses = true;
  CHECK(absl::IsPermissionDenied(
      transport.keeper().OpenNamespace(ModelNamed("m"), 1s, &undeclared).status()));
  transport.refuses = false;
  transport.silent = true;
  const auto ns = transport.keeper().OpenNamespace(ModelNamed("n"), 1s, &undeclared);
  REQUIRE(ns.ok());
  CHECK(undeclared.session == session);
  CHECK(absl::IsDeadlineExceeded(undeclared.why));
  CHECK(absl::IsUnavailable(transport.keeper().Prepare(*ns).status()));
  CHECK_FALSE(transport.keeper().DeclareAll(session).ok());
  transport.silent = false;
  CHECK(transport.keeper().DeclareAll(session).ok());
  CHECK(transport.keeper().Prepare(*ns).ok());
  CHECK(transport.asked("m") == 1);
}

TEST_CASE("a session whose namespaces the daemon does not answer to is not given to calls") {
  FakeTransport transport;
  const auto session = transport.Open();
  FakeTransport::Keeper::Undeclared undeclared;
  REQUIRE(transport.keeper().OpenNamespace(ModelNamed("m"), 1s, &undeclared).ok());
  transport.silent = true;
  session->ended = true;
  CHECK(Soon([&] { return transport.attempts > 3; }));
  CHECK_FALSE(transport.keeper().WaitConnected(10ms));
  transport.silent = false;
  CHECK(transport.keeper().WaitConnected(10s));
}

TEST_CASE("what comes in between is prepared before a session is published") {
  FakeTransport transport;
  transport.unprepared = 3;
  transport.Open()->ended = true;
  transport.Open();
  CHECK(transport.unprepared < 0);
}

TEST_CASE("a keeper that is stopped gives out no session and ends at once, whatever it waits for") {
  for (const bool away : {false, true}) {
    FakeTransport transport(std::chrono::minutes(10));
    transport.Open();
    transport.away = away;
    if (away) transport.Open()->ended = true;
    if (away) REQUIRE(Soon([&] { return !transport.keeper().why_away().ok(); }));
    const auto began = std::chrono::steady_clock::now();
    transport.Stop();
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::minutes(1));
    CHECK(absl::IsCancelled(transport.keeper().Current().status()));
    CHECK_FALSE(transport.keeper().WaitConnected(10s));
    CHECK(transport.keeper().session() == nullptr);
    CHECK(absl::IsCancelled(transport.keeper().Begin(std::make_shared<FakeSession>())));
  }
}

TEST_CASE("a keeper that is stopped while it declares a namespace names the session to be ended") {
  FakeTransport transport;
  FakeTransport::Keeper::Undeclared undeclared;
  const auto session = transport.Open();
  REQUIRE(transport.keeper().OpenNamespace(ModelNamed("m"), 1s, &undeclared).ok());
  transport.hung = true;
  session->ended = true;  // the next one is asked, and does not answer
  REQUIRE(Soon([&] { return transport.attempts >= 2; }));
  CHECK_FALSE(transport.keeper().WaitConnected(10ms));
  transport.Stop();
  CHECK(absl::IsCancelled(transport.keeper().Current().status()));
}

}  // namespace kvkeep::client
