#include "server/life/kill_point.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>

#include "tiers/base/test_point.h"

namespace kvkeep {
namespace {

std::string die_at;
std::atomic<int> visits_left{0};

void DieThere(const char* name) {
  if (name == die_at && visits_left.fetch_sub(1) == 1) kill(getpid(), SIGKILL);
}

}  // namespace

bool ArmKillPoint(const char* name_and_count) {
  if (name_and_count == nullptr) return true;
  const std::pair<std::string, std::string> parts = absl::StrSplit(name_and_count, ':');
  int visits = 0;
  if (parts.first.empty() || !absl::SimpleAtoi(parts.second, &visits) || visits < 1) return false;
  die_at = parts.first;
  visits_left = visits;
  test_point_hook = DieThere;
  return true;
}

}  // namespace kvkeep
