#include "server/fleet/members.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "config/values.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr size_t kMostFileBytes = 256 * 1024;
constexpr std::chrono::seconds kLookEvery{1};

}  // namespace

absl::StatusOr<Member> ParseMember(absl::string_view text) {
  KVKEEP_RETURN_IF_ERROR(CheckPeer(text));
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  return Member{absl::AsciiStrToLower(parts.first), std::string(parts.second)};
}

absl::StatusOr<std::vector<Member>> ParseMembers(absl::string_view text) {
  std::vector<Member> members;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    absl::StatusOr<Member> member = ParseMember(line);
    if (!member.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", std::string(member.status().message())));
    }
    members.push_back(*std::move(member));
  }
  return members;
}

absl::StatusOr<std::shared_ptr<Members>> Members::Load(const Options& options) {
  Options lower = options;
  lower.node = absl::AsciiStrToLower(options.node);
  const std::shared_ptr<Members> members(new Members(lower));
  KVKEEP_ASSIGN_OR_RETURN(std::vector<Member> all, members->Read());
  MutexLock lock(&members->mu_);
  members->all_ = std::move(all);
  return members;
}

Members::Members(const Options& options) : options_(options), changes_({options.file}) {}

absl::StatusOr<std::vector<Member>> Members::Read() const {
  std::vector<Member> members;
  for (const std::string& peer : options_.peers) {
    KVKEEP_ASSIGN_OR_RETURN(Member member, ParseMember(peer));
    members.push_back(std::move(member));
  }
  if (!options_.file.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(const std::string text,
                            ReadPrivateFile(options_.file, kMostFileBytes, Secrecy::kPublic));
    absl::StatusOr<std::vector<Member>> more = ParseMembers(text);
    if (!more.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options_.file, ": ", std::string(more.status().message())));
    }
    members.insert(members.end(), more->begin(), more->end());
  }
  std::erase_if(members, [this](const Member& one) { return one.name == options_.node; });
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(members.begin(), members.end(),
                         [](const Member& a, const Member& b) { return a.name == b.name; });
  if (twice != members.end()) {
    return absl::InvalidArgumentError(absl::StrCat("peers: two nodes are named ", twice->name));
  }
  if (members.size() > kMostMembers) {
    return absl::InvalidArgumentError(
        absl::StrCat("peers: ", members.size(), " nodes; at most ", kMostMembers));
  }
  return members;
}

std::vector<Member> Members::all() const {
  MutexLock lock(&mu_);
  return all_;
}

void Members::Watch() {
  if (options_.file.empty()) return;
  watcher_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "kvkeep-members");
    while (WaitForTurn()) Look();
  });
}

bool Members::WaitForTurn() {
  MutexLock lock(&mu_);
  if (!stopped_) stop_.WaitFor(&mu_, kLookEvery);
  return !stopped_;
}

Members::~Members() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
  }
  stop_.NotifyAll();
  if (watcher_.joinable()) watcher_.join();
}

void Members::Look() {
  if (options_.file.empty() || !changes_.Due()) return;
  absl::StatusOr<std::vector<Member>> now = Read();
  MutexLock lock(&mu_);
  news_ = now.status();
  if (now.ok()) all_ = *std::move(now);
}

std::optional<absl::Status> Members::TakeNews() {
  MutexLock lock(&mu_);
  return std::exchange(news_, std::nullopt);
}

}  // namespace kvkeep
