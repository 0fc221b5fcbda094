#include "tests/fakes/scripted_http_engine.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/bytes.h"

namespace kvkeep {

HttpCall ScriptedHttpEngine::Start(HttpRequest request, Done done) {
  const HttpCall call(++started_);
  calls_.emplace(call.value(), Call{.request = std::move(request), .done = std::move(done)});
  Post([this, call] { Begin(call); });
  return call;
}

void ScriptedHttpEngine::Cancel(HttpCall call) {
  Post([this, call] { End(call, absl::CancelledError("cancelled")); });
}

void ScriptedHttpEngine::RunAt(MonotonicTime at, Executor::Task task) {
  if (clock_ == nullptr || at <= clock_->Now()) return Post(std::move(task));
  tasks_.emplace(at, std::move(task));
}

void ScriptedHttpEngine::RunDue() {
  const MonotonicTime now = clock_->Now();
  while (!tasks_.empty() && tasks_.begin()->first <= now) {
    Post(std::move(tasks_.begin()->second));
    tasks_.erase(tasks_.begin());
  }
  for (const auto& [number, call] : calls_) {
    if (call.request.deadline > now) continue;
    Post([this, call = HttpCall(number)] { End(call, absl::DeadlineExceededError("late")); });
  }
}

std::optional<MonotonicTime> ScriptedHttpEngine::next() const {
  std::optional<MonotonicTime> next;
  const auto take = [&](MonotonicTime at) {
    if (at != MonotonicTime::max()) next = std::min(next.value_or(at), at);
  };
  if (!tasks_.empty()) take(tasks_.begin()->first);
  for (const auto& [number, call] : calls_) take(call.request.deadline);
  return next;
}

ScriptedHttpEngine::~ScriptedHttpEngine() {
  tasks_.clear();
  while (!calls_.empty()) {
    End(HttpCall(calls_.begin()->first), absl::CancelledError("stopped"));
  }
}

void ScriptedHttpEngine::Post(Executor::Task task) {
  executor_.Post([alive = std::weak_ptr<bool>(alive_), task = std::move(task)]() mutable {
    if (!alive.expired()) std::move(task)();
  });
}

void ScriptedHttpEngine::Begin(HttpCall call) {
  const auto at = calls_.find(call.value());
  if (at == calls_.end()) return;
  Call& begun = at->second;
  std::string body;
  for (const auto& run : begun.request.body) absl::StrAppend(&body, AsText(run));
  begun.answer.sent_bytes = body.size();
  std::optional<ScriptedAnswer> script = script_(begun.request, std::move(body));
  if (!script.has_value()) return;  // it hangs
  begun.script = *std::move(script);
  if (begun.script.status != 0) {
    begun.answer.connected = true;
    begun.answer.head.status = begun.script.status;
    begun.answer.head.headers = begun.script.headers;
    begun.answer.head.content_bytes = begun.script.body.size();
  }
  Post([this, call] { Step(call); });
}

void ScriptedHttpEngine::Step(HttpCall call) {
  const auto at = calls_.find(call.value());
  if (at == calls_.end()) return;
  Call& stepped = at->second;
  HttpSink* const sink = stepped.script.status / 100 == 2 ? stepped.request.sink : nullptr;
  if (sink != nullptr && !stepped.begun) {
    stepped.begun = true;
    if (absl::Status status = sink->Begin(stepped.answer.head); !status.ok()) {
      return End(call, std::move(status));
    }
  }
  const size_t end = std::min(stepped.script.body.size(),
                              stepped.script.cut_at.value_or(stepped.script.body.size()));
  if (stepped.given >= end) {
    if (stepped.script.hangs) return;
    const bool cut = end < stepped.script.body.size() && stepped.script.fails.ok();
    return End(call, cut ? absl::UnavailableError("cut off") : stepped.script.fails);
  }
  const std::string piece =
      stepped.script.body.substr(stepped.given, std::min(piece_bytes_, end - stepped.given));
  stepped.given += piece.size();
  if (sink == nullptr) {
    absl::StrAppend(&stepped.answer.text, piece);
  } else {
    if (absl::Status status = sink->Take(AsBytes(piece)); !status.ok()) {
      return End(call, std::move(status));
    }
    stepped.answer.body_bytes += piece.size();
  }
  Post([this, call] { Step(call); });
}

void ScriptedHttpEngine::End(HttpCall call, absl::Status status) {
  const auto at = calls_.find(call.value());
  if (at == calls_.end()) return;
  Call ended = std::move(at->second);
  calls_.erase(at);
  ended.answer.status = std::move(status);
  std::move(ended.done)(std::move(ended.answer));
}

}  // namespace kvkeep
