// The patterns of load: what each promises of its requests, checked on the requests themselves.
#include "tools/bench/client/pattern.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

namespace kvkeep::bench {
namespace {

PatternOptions Pm1753(double seconds = 100) { return {.seconds = seconds}; }

PatternOptions SessionOptions() {
  return {.kind = PatternKind::kSessions, .users = 80, .requests_per_second = 4, .seconds = 400};
}

struct Sizes {
  double recalled = 0, stored = 0;
};
Sizes SizesOf(const Pattern& pattern) {
  Sizes all;
  for (const PromptRequest& request : pattern.requests) {
    all.recalled += static_cast<double>(request.prompt.size());
    all.stored += static_cast<double>(request.answer.size());
  }
  return all;
}

bool Same(const Pattern& a, const Pattern& b) {
  if (a.before != b.before || a.requests.size() != b.requests.size()) return false;
  for (size_t i = 0; i < a.requests.size(); ++i) {
    const PromptRequest &x = a.requests[i], &y = b.requests[i];
    if (x.at_seconds != y.at_seconds || x.user != y.user || x.prompt != y.prompt ||
        x.answer != y.answer) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("the same seed makes the same requests in every process, another one others") {
  for (PatternOptions options : {Pm1753(10), SessionOptions()}) {
    const auto sent =
        FieldsFromJson<PatternOptions>(Json::parse(FieldsToJson(options).dump()));
    const Pattern pattern = MakePattern(options);
    CHECK(Same(pattern, MakePattern(sent)));
    options.seed = 2;
    CHECK_FALSE(Same(pattern, MakePattern(options)));
  }
}

TEST_CASE(
    "every chunk of a prompt was stored before, by an answer or as a part of what was there") {
  for (const PatternOptions& options : {Pm1753(), SessionOptions()}) {
    const Pattern pattern = MakePattern(options);
    std::set<uint64_t> there(pattern.before.begin(), pattern.before.end());
    CHECK(there.size() == pattern.before.size());
    size_t unknown_requests = 0, stored_again = 0;
    for (const PromptRequest& request : pattern.requests) {
      bool known = true;
      for (const uint64_t chunk : request.prompt) known &= !there.insert(chunk).second;
      for (const uint64_t chunk : request.answer) stored_again += !there.insert(chunk).second;
      unknown_requests += !known;
    }
    CHECK(stored_again == 0);
    CHECK(there.size() == pattern.DistinctChunks());
    // In sessions, questions are new, and so are new users' histories.
    if (options.kind == PatternKind::kPm1753) CHECK(unknown_requests == 0);
    if (options.kind == PatternKind::kSessions) CHECK(unknown_requests > 0);
  }
}

TEST_CASE("pm1753: 280 users, of whose chunks 92 % are recalled and 8 % stored") {
  const Pattern pattern = MakePattern(Pm1753());
  const Sizes sizes = SizesOf(pattern);
  CHECK(sizes.stored / (sizes.stored + sizes.recalled) == Approx(0.08).epsilon(0.001));
  std::set<uint32_t> users;
  for (const PromptRequest& request : pattern.requests) users.insert(request.user);
  CHECK(users.size() == 280);
}

TEST_CASE("pm1753: the rate holds on average; a burst is twice it, five requests at a time") {
  const PatternOptions options = Pm1753(1000);
  const Pattern pattern = MakePattern(options);
  CHECK(static_cast<double>(pattern.requests.size()) / 1000 == Approx(40).epsilon(0.03));
  size_t in_bursts = 0;
  std::map<double, size_t> at_once_in_bursts, at_once_between;
  for (const PromptRequest& request : pattern.requests) {
    in_bursts += request.in_burst;
    ++(request.in_burst ? at_once_in_bursts : at_once_between)[request.at_seconds];
  }
  // A fifth of the time.
  CHECK(static_cast<double>(in_bursts) / 200 == Approx(80).epsilon(0.05));
  for (const auto& [at, requests] : at_once_in_bursts) REQUIRE(requests == 5);
  for (const auto& [at, requests] : at_once_between) REQUIRE(requests == 1);
}

TEST_CASE(
    "pm1753: users follow one another, and each one's prompts go on where the last one ended") {
  const Pattern pattern = MakePattern(Pm1753(60));
  std::map<uint32_t, PromptRequest> last;
  size_t began_anew = 0;
  for (size_t i = 0; i < pattern.requests.size(); ++i) {
    const PromptRequest& request = pattern.requests[i];
    if (i % 280 == 0) CHECK(last.size() == std::min<size_t>(i, 280));
    for (size_t at = 0; at < request.prompt.size(); ++at) {
      REQUIRE(request.prompt[at] % (1 << 24) == at);  // in order, from the first one on
    }
    if (const auto before = last.find(request.user); before != last.end()) {
      std::vector<uint64_t> expected = before->second.prompt;
      expected.insert(expected.end(), before->second.answer.begin(), before->second.answer.end());
      if (request.prompt.size() < expected.size()) {
        ++began_anew;
        expected.resize(request.prompt.size());
      }
      REQUIRE(request.prompt == expected);
    }
    last[request.user] = request;
  }
  CHECK(began_anew > 0);
}

TEST_CASE("sessions: users share the system prompt alone, and ask one after the other, by QPS") {
  const PatternOptions options = SessionOptions();
  const Pattern pattern = MakePattern(options);
  CHECK(pattern.requests.size() == 4 * 400);
  std::map<uint32_t, std::vector<PromptRequest>> by_user;
  for (const PromptRequest& request : pattern.requests) by_user[request.user].push_back(request);
  CHECK(by_user.size() == 80);
  const std::vector<uint64_t>& a = by_user[0][0].prompt;
  const std::vector<uint64_t>& b = by_user[1][0].prompt;
  const size_t shared = 1'000 / 256;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) CHECK((a[i] == b[i]) == (i < shared));
  CHECK(a.size() >= (1'000 + 4'000) / 256);
  for (const auto& [user, requests] : by_user) {
    for (size_t i = 1; i < requests.size(); ++i) {
      REQUIRE(requests[i].at_seconds - requests[i - 1].at_seconds == Approx(20));
    }
  }
}

TEST_CASE("sessions: after the last round somebody new takes the place") {
  const Pattern pattern = MakePattern(SessionOptions());
  std::map<uint32_t, std::vector<uint64_t>> run_of_rounds;  // the run of each request's last chunk
  for (const PromptRequest& request : pattern.requests) {
    run_of_rounds[request.user].push_back(request.prompt.back() >> 24);
  }
  for (const auto& [user, runs] : run_of_rounds) {
    REQUIRE(runs.size() == 20);
    const size_t left = 10 - user % 10;  // of the rounds that the first one began in
    for (size_t i = 0; i + 1 < runs.size(); ++i) {
      REQUIRE((runs[i] != runs[i + 1]) == ((i + 1 + 10 - left) % 10 == 0));
    }
  }
}

TEST_CASE("options that no load can be made of are refused by name") {
  const auto refused = [](PatternOptions options) {
    return std::string(options.Validate().message());
  };
  CHECK(refused({.users = 0}).find("users") == 0);
  CHECK(refused({.users = 4, .workers = 5}).find("clients") == 0);
  CHECK(refused({.requests_per_second = 1e6}).find("rate") == 0);
  CHECK(refused({.burst_share = 0.5}).find("bursts") == 0);
  CHECK(refused({.tokens_per_chunk = 1'000'000}).find("history") == 0);
}

}  // namespace kvkeep::bench
