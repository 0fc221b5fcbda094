#include "tools/bench/child_process.h"

#include <unistd.h>

#include <catch2/catch.hpp>

namespace kvkeep::bench {
namespace {

constexpr std::chrono::milliseconds kPatience{20'000};

std::unique_ptr<ChildProcess> Start() {
  auto child = ChildProcess::Fork("helper", []() -> ChildProcess::Handler {
    return [calls = 0](const Json& command) mutable -> absl::StatusOr<Json> {
      const std::string what = command.at("do");
      if (what == "end") _exit(3);
      if (what == "fail") return absl::NotFoundError("nothing \xff here");
      return Json{{"calls", ++calls}, {"pid", getpid()}};
    };
  });
  REQUIRE(child.ok());
  return *std::move(child);
}

}  // namespace

TEST_CASE("a child answers in a process of its own, one command after the other") {
  auto child = Start();
  for (int call = 1; call <= 3; ++call) {
    const auto answer = child->Call({{"do", "count"}}, kPatience);
    REQUIRE(answer.ok());
    CHECK((*answer)["calls"] == call);
    CHECK((*answer)["pid"] != getpid());
  }
}

TEST_CASE("an error travels with its code and words, and the child goes on") {
  auto child = Start();
  const auto failed = child->Call({{"do", "fail"}}, kPatience);
  CHECK(absl::IsNotFound(failed.status()));
  CHECK(std::string(failed.status().message()).find("helper: nothing") == 0);
  CHECK(child->Call({{"do", "count"}}, kPatience).ok());
}

TEST_CASE("a child that died is unavailable, and never a hang") {
  auto child = Start();
  CHECK(absl::IsUnavailable(child->Call({{"do", "end"}}, kPatience).status()));
  CHECK(absl::IsUnavailable(child->Call({{"do", "count"}}, kPatience).status()));
}

}  // namespace kvkeep::bench
