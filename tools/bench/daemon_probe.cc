#include "tools/bench/daemon_probe.h"

#include <absl/strings/str_cat.h>

#include <thread>

#include "client/admin.h"
#include "tiers/base/status_macros.h"
#include "tools/bench/cpu_time.h"

namespace kvkeep::bench {
namespace {

absl::StatusOr<Json> AnswerProbe(client::AdminClient& admin, const std::string& what) {
  if (what == "clear") {
    KVKEEP_RETURN_IF_ERROR(admin.Clear(nullptr).status());
    return Json();
  }
  KVKEEP_ASSIGN_OR_RETURN(const v1::StatusResponse said, admin.Status());
  DaemonStatus status{.pid = static_cast<int>(said.pid()),
                      .version = said.version(),
                      .arena = said.arena(),
                      .g2_capacity_bytes = said.g2().capacity_bytes(),
                      .g2_dirty_bytes = said.g2().dirty_bytes(),
                      .g3_capacity_bytes = said.g3().capacity_bytes()};
  for (const auto& [name, value] : said.counters()) status.counters[name] = value;
  return FieldsToJson(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DaemonProbe>> DaemonProbe::Start(const std::string& admin_endpoint) {
  KVKEEP_ASSIGN_OR_RETURN(
      auto child, ChildProcess::Fork("status", [admin_endpoint]() -> ChildProcess::Handler {
        auto admin = std::make_shared<client::AdminClient>(admin_endpoint, kChildPatience);
        return [admin](const Json& command) {
          return AnswerProbe(*admin, command.at("do").get<std::string>());
        };
      }));
  return std::unique_ptr<DaemonProbe>(new DaemonProbe(std::move(child)));
}

absl::StatusOr<DaemonStatus> DaemonProbe::Status() {
  KVKEEP_ASSIGN_OR_RETURN(const Json json, child_->Call({{"do", "status"}}, kChildPatience));
  return FieldsFromJson<DaemonStatus>(json);
}

absl::Status DaemonProbe::Clear() {
  return child_->Call({{"do", "clear"}}, kChildPatience).status();
}

absl::Status DaemonProbe::AwaitClean(std::chrono::milliseconds timeout,
                                     std::chrono::milliseconds pause_between_looks) {
  return Await([](const DaemonStatus& status) { return status.g2_dirty_bytes == 0; }, timeout,
               pause_between_looks, "write everything back");
}

absl::Status DaemonProbe::AwaitGpuArena(std::chrono::milliseconds timeout) {
  const auto asked_for_all = [](const DaemonStatus& status) {
    return status.counter("gpu_arena_registered_bytes") +
               status.counter("gpu_arena_refused_bytes") >=
           status.g2_capacity_bytes;
  };
  return Await(asked_for_all, timeout, std::chrono::milliseconds(10),
               "register its arena with the GPU's driver");
}

absl::Status DaemonProbe::Await(absl::FunctionRef<bool(const DaemonStatus&)> done,
                                std::chrono::milliseconds timeout,
                                std::chrono::milliseconds pause_between_looks, const char* what) {
  const double give_up = WallSeconds() + std::chrono::duration<double>(timeout).count();
  while (true) {
    KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus status, Status());
    if (done(status)) return absl::OkStatus();
    if (WallSeconds() > give_up) {
      return absl::DeadlineExceededError(absl::StrCat("the daemon did not ", what, " in time"));
    }
    std::this_thread::sleep_for(pause_between_looks);  // for another process
  }
}

}  // namespace kvkeep::bench
