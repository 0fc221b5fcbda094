#include <absl/strings/str_cat.h>

#include <thread>

#include "client/admin.h"
#include "tiers/base/status_macros.h"
#include "tools/bench/bench_client.h"
#include "tools/bench/cpu_time.h"

namespace kvkeep::bench {
namespace {

absl::StatusOr<Json> Answer(client::AdminClient& admin, const std::string& what) {
  if (what == "clear") {
    KVKEEP_ASSIGN_OR_RETURN(const v1::ClearResponse cleared, admin.Clear(nullptr));
    return Json{{"chunks", cleared.cleared_chunks()}};
  }
  KVKEEP_ASSIGN_OR_RETURN(const v1::StatusResponse status, admin.Status());
  Json counters = Json::object();
  for (const auto& [name, value] : status.counters()) counters[name] = value;
  return Json{{"pid", status.pid()},
              {"version", status.version()},
              {"arena", status.arena()},
              {"g2_capacity_bytes", status.g2().capacity_bytes()},
              {"g2_chunks", status.g2().chunks()},
              {"g2_dirty_bytes", status.g2().dirty_bytes()},
              {"g3_capacity_bytes", status.g3().capacity_bytes()},
              {"g3_chunks", status.g3().chunks()},
              {"counters", std::move(counters)}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<DaemonProbe>> DaemonProbe::Start(const std::string& admin_endpoint) {
  KVKEEP_ASSIGN_OR_RETURN(
      auto child, ChildProcess::Fork("status", [admin_endpoint]() -> ChildProcess::Handler {
        auto admin = std::make_shared<client::AdminClient>(admin_endpoint, kChildPatience);
        return [admin](const Json& command) {
          return Answer(*admin, command.at("do").get<std::string>());
        };
      }));
  return std::unique_ptr<DaemonProbe>(new DaemonProbe(std::move(child)));
}

absl::StatusOr<DaemonStatus> DaemonProbe::Status() {
  KVKEEP_ASSIGN_OR_RETURN(const Json json, child_->Call({{"do", "status"}}, kChildPatience));
  DaemonStatus status;
  status.pid = json.at("pid");
  status.version = json.at("version");
  status.arena = json.at("arena");
  status.g2_capacity_bytes = json.at("g2_capacity_bytes");
  status.g2_chunks = json.at("g2_chunks");
  status.g2_dirty_bytes = json.at("g2_dirty_bytes");
  status.g3_capacity_bytes = json.at("g3_capacity_bytes");
  status.g3_chunks = json.at("g3_chunks");
  for (const auto& [name, value] : json.at("counters").items()) status.counters[name] = value;
  return status;
}

absl::StatusOr<uint64_t> DaemonProbe::Clear() {
  KVKEEP_ASSIGN_OR_RETURN(const Json json, child_->Call({{"do", "clear"}}, kChildPatience));
  return json.at("chunks").get<uint64_t>();
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
