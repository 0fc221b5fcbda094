#include "tests/sim/script.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>

#include "tests/sim/fleet/fleet_options.h"
#include "tests/sim/random_world.h"
#include "tiers/policy/eviction_policy.h"

namespace kvkeep {
namespace {

const std::vector<std::string>& RemovableOf(const Script& script) {
  return script.nodes > 1 ? FleetRemovable() : Removable();
}

}  // namespace

std::string FormatScript(const Script& script, const std::map<uint64_t, std::string>& what) {
  std::string text = absl::StrCat("seed ", script.seed, "\npolicy ", script.policy, "\n");
  if (script.nodes > 1) absl::StrAppend(&text, "nodes ", script.nodes, "\n");
  if (!script.without.empty()) absl::StrAppend(&text, "without");
  for (const std::string& name : script.without) absl::StrAppend(&text, " ", name);
  if (!script.without.empty()) absl::StrAppend(&text, "\n");
  for (const uint64_t step : script.steps) {
    const auto comment = what.find(step);
    absl::StrAppend(&text, "step ", step, comment != what.end() ? "  " + comment->second : "",
                    "\n");
  }
  return text;
}

absl::StatusOr<Script> ParseScript(const std::string& text) {
  Script script;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::vector<std::string> words = absl::StrSplit(lines[i], ' ', absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    const auto wrong = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat("line ", i + 1, ": ", why));
    };
    if (words.size() < 2) return wrong("a word and a value are wanted");
    uint64_t number = 0;
    if (words[0] == "policy") {
      if (MakeEvictionPolicy(words[1], {.max_chunks = 1}) == nullptr) {
        return wrong(absl::StrCat("'", words[1], "' is no policy"));
      }
      script.policy = words[1];
    } else if (words[0] == "without") {
      const auto& known = RemovableOf(script);
      for (size_t w = 1; w < words.size(); ++w) {
        if (std::find(known.begin(), known.end(), words[w]) == known.end()) {
          return wrong(absl::StrCat("'", words[w], "' is nothing that can be left out"));
        }
        script.without.push_back(words[w]);
      }
    } else if (!absl::SimpleAtoi(words[1], &number)) {
      return wrong(absl::StrCat("'", words[1], "' is no number"));
    } else if (words[0] == "seed") {
      script.seed = number;
    } else if (words[0] == "nodes") {
      if (number == 0 || number > kMostNodes) {
        return wrong(absl::StrCat("nodes are 1 to ", kMostNodes));
      }
      script.nodes = number;
    } else if (words[0] == "step") {
      script.steps.push_back(number);
    } else {
      return wrong(absl::StrCat("'", words[0], "' is not known"));
    }
  }
  if (script.steps.empty()) return absl::InvalidArgumentError("there is no step in it");
  return script;
}

namespace {

void DropFaults(Script& script, const std::function<bool(const Script&)>& same) {
  for (const std::string& name : RemovableOf(script)) {
    const auto& out = script.without;
    if (std::find(out.begin(), out.end(), name) != out.end()) continue;
    Script candidate = script;
    candidate.without.push_back(name);
    if (same(candidate)) script = std::move(candidate);
  }
}

// Removes smaller and smaller runs of steps, until none can go.
void DropSteps(Script& script, const std::function<bool(const Script&)>& same) {
  for (size_t chunk = std::max<size_t>(1, script.steps.size() / 2); chunk > 0;) {
    bool dropped = false;
    for (size_t at = 0; at < script.steps.size() && script.steps.size() > 1;) {
      const size_t end = std::min(at + chunk, script.steps.size());
      Script candidate = script;
      candidate.steps.erase(candidate.steps.begin() + static_cast<ptrdiff_t>(at),
                            candidate.steps.begin() + static_cast<ptrdiff_t>(end));
      if (!candidate.steps.empty() && same(candidate)) {
        script = std::move(candidate);
        dropped = true;
      } else {
        at = end;
      }
    }
    if (chunk == 1 && !dropped) break;
    chunk = std::max<size_t>(1, chunk / 2);
  }
}

}  // namespace

Script Shrink(const Script& script, const std::function<std::string(const Script&)>& failure) {
  constexpr int kMostRuns = 5000;
  const std::string wanted = failure(script);
  if (wanted.empty()) return script;
  int runs = 0;
  const auto same = [&](const Script& candidate) {
    return ++runs <= kMostRuns && failure(candidate) == wanted;
  };
  Script best = script;
  DropFaults(best, same);
  DropSteps(best, same);
  DropFaults(best, same);
  return best;
}

}  // namespace kvkeep
