#include "tools/bench/client/daemon_commands.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "client/admin.h"
#include "tiers/base/status_macros.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

constexpr std::chrono::seconds kPatience{60};  // of an answer that takes no time to speak of

class Watched {
 public:
  absl::StatusOr<Json> Watch(const Json& arguments) {
    admin_ = std::make_unique<client::AdminClient>(arguments.at("admin").get<std::string>(),
                                                   kPatience);
    return Json::object();
  }

  absl::StatusOr<Json> Status() {
    if (admin_ == nullptr) return absl::FailedPreconditionError("no daemon is watched");
    KVKEEP_ASSIGN_OR_RETURN(const v1::StatusResponse said, admin_->Status());
    Json counters = Json::object();
    for (const auto& [name, value] : said.counters()) counters[name] = value;
    const auto joining =
        std::count_if(said.devices().begin(), said.devices().end(),
                      [](const auto& device) { return device.state() == "joining"; });
    return Json{{"pid", said.pid()},
                {"version", said.version()},
                {"arena", said.arena()},
                {"g2_capacity_bytes", said.g2().capacity_bytes()},
                {"g2_dirty_bytes", said.g2().dirty_bytes()},
                {"g3_capacity_bytes", said.g3().capacity_bytes()},
                {"joining_devices", joining},
                {"counters", std::move(counters)}};
  }

  absl::StatusOr<Json> Clear() {
    if (admin_ == nullptr) return absl::FailedPreconditionError("no daemon is watched");
    KVKEEP_RETURN_IF_ERROR(admin_->Clear(nullptr).status());
    return Json::object();
  }

 private:
  std::unique_ptr<client::AdminClient> admin_;
};

}  // namespace

void AddDaemonCommands(Commands* commands) {
  const auto watched = std::make_shared<Watched>();
  commands->Add("watch", [watched](const Json& arguments) { return watched->Watch(arguments); });
  commands->Add("status", [watched](const Json&) { return watched->Status(); });
  commands->Add("clear", [watched](const Json&) { return watched->Clear(); });
  commands->Add("default sockets", [](const Json&) -> absl::StatusOr<Json> {
    return Json{{"endpoint", tools::DefaultSocket("KVKEEP_ENDPOINT", "kvkeep.sock")},
                {"admin", tools::DefaultAdminSocket()}};
  });
}

}  // namespace kvkeep::bench
