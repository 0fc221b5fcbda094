// ScriptedHttpEngine: HttpEngine without a network. A test's script answers requests step by step
// on an executor of the test; a request without an answer hangs until it is cancelled, or its
// deadline has passed. Bodies come in pieces, so that cancels and refusing sinks meet every state.
// A call is answered once, never inside Start or Cancel. The test controls time: RunDue runs what
// is due. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tests/fakes/manual_executor.h"
#include "tiers/objects/http_engine.h"

namespace kvkeep {

struct ScriptedAnswer {
  int status = 200;
  HttpHeaders headers;
  std::string body;
  absl::Status fails;                 // of the way, after the body's bytes
  std::optional<size_t> cut_at;       // how much of the body comes
  bool hangs = false;                 // after that, and does not end
};

class ScriptedHttpEngine final : public HttpEngine {
 public:
  // `body`: of the request, its runs in one.
  using Script =
      std::function<std::optional<ScriptedAnswer>(const HttpRequest& request, std::string body)>;

  // `clock`: none, if nothing has a time.
  ScriptedHttpEngine(ManualExecutor* executor, Script script, size_t piece_bytes = 4096,
                     const Clock* clock = nullptr)
      : executor_(*executor),
        script_(std::move(script)),
        piece_bytes_(piece_bytes),
        clock_(clock) {}
  // Cancels all calls, and answers them.
  ~ScriptedHttpEngine() override;

  HttpCall Start(HttpRequest request, Done done) override;
  void Cancel(HttpCall call) override;
  void RunAt(MonotonicTime at, Executor::Task task) override;

  // Posts due tasks, and the end of calls whose deadline has passed.
  void RunDue();
  // Returns when something is due next; none if nothing is.
  std::optional<MonotonicTime> next() const;

  size_t started() const { return started_; }
  size_t unanswered() const { return calls_.size(); }

 private:
  struct Call {
    HttpRequest request;
    Done done;
    ScriptedAnswer script;
    HttpAnswer answer;
    size_t given = 0;
    bool begun = false;
  };
  void Post(Executor::Task task);
  void Begin(HttpCall call);
  void Step(HttpCall call);
  void End(HttpCall call, absl::Status status);

  ManualExecutor& executor_;
  const Script script_;
  const size_t piece_bytes_;
  const Clock* const clock_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for posted tasks
  size_t started_ = 0;
  std::multimap<MonotonicTime, Executor::Task> tasks_;
  std::map<uint64_t, Call> calls_;
};

}  // namespace kvkeep
