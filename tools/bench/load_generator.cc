#include "tools/bench/load_generator.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/status_macros.h"
#include "tools/bench/bench_client.h"
#include "tools/bench/cpu_time.h"

namespace kvkeep::bench {
namespace {

// Loading a large table takes long, and so may verifying what was measured.
constexpr std::chrono::milliseconds kPatience{600'000};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadGenerator>> LoadGenerator::Start(
    const ClientTarget& target, const std::string& admin_endpoint, uint32_t clients,
    int daemon_pid) {
  std::unique_ptr<LoadGenerator> generator(new LoadGenerator());
  for (uint32_t i = 0; i < clients; ++i) {
    KVKEEP_ASSIGN_OR_RETURN(generator->clients_.emplace_back(),
                            ChildProcess::Fork(absl::StrCat("client ", i), [&, i] {
                              return MakeBenchClient(target, i, clients);
                            }));
  }
  KVKEEP_ASSIGN_OR_RETURN(const auto connected, generator->AskAll({{"do", "connect"}}));
  generator->kind_of_path_ = connected[0].at("path");
  generator->path_ = connected[0].at("why");
  if (generator->path_.empty()) generator->path_ = generator->kind_of_path_;
  generator->daemon_pid_ = daemon_pid;
  if (admin_endpoint.empty()) return generator;
  KVKEEP_ASSIGN_OR_RETURN(generator->probe_, DaemonProbe::Start(admin_endpoint));
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus status, generator->Status());
  if (daemon_pid == 0) generator->daemon_pid_ = status.pid;
  return generator;
}

absl::StatusOr<Json> LoadGenerator::Ask(const Json& command, double seconds) {
  return clients_[0]->Call(command,
                           kPatience + std::chrono::milliseconds(static_cast<int>(seconds * 1e3)));
}

absl::StatusOr<std::vector<Json>> LoadGenerator::AskAll(const Json& command, double seconds) {
  const auto patience = kPatience + std::chrono::milliseconds(static_cast<int>(seconds * 1e3));
  for (auto& client : clients_) KVKEEP_RETURN_IF_ERROR(client->Send(command));
  std::vector<Json> answers;
  for (auto& client : clients_) {
    KVKEEP_ASSIGN_OR_RETURN(answers.emplace_back(), client->Receive(patience));
  }
  return answers;
}

absl::StatusOr<DaemonStatus> LoadGenerator::Status() {
  if (probe_ == nullptr) return DaemonStatus{};
  return probe_->Status();
}

absl::Status LoadGenerator::Load(uint64_t first, uint64_t count, uint64_t size, bool no_g3) {
  return Ask({{"do", "load"}, {"first", first}, {"count", count}, {"size", size}, {"no_g3", no_g3}})
      .status();
}

absl::StatusOr<Series> LoadGenerator::Prepare(std::string name, const CaseSpec& spec) {
  KVKEEP_ASSIGN_OR_RETURN(const auto prepared,
                          AskAll({{"do", "prepare"}, {"case", FieldsToJson(spec)}}));
  Series series{.name = std::move(name), .about = ToReport(spec), .has_daemon = true};
  series.about["clients"] = clients_.size();
  series.about["path"] = kind_of_path_;
  series.about["prepared"] = prepared[0];  // the same number on each client
  return series;
}

absl::Status LoadGenerator::Run(double seconds, Series* series, uint64_t max_ops) {
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus before, Status());
  const double cpu_before = daemon_pid_ > 0 ? CpuSecondsOf(daemon_pid_).value_or(0) : 0;
  KVKEEP_ASSIGN_OR_RETURN(const auto answers,
                          AskAll({{"do", "run"},
                                  {"prepared", series->about.at("prepared")},
                                  {"seconds", seconds},
                                  {"max_ops", max_ops},
                                  {"verify", series->about.at("verify")}},
                                 seconds));
  Measured all;
  for (const Json& wire : answers) all.Add(FromWire(wire), /*side_by_side=*/true);
  const double cpu_after = daemon_pid_ > 0 ? CpuSecondsOf(daemon_pid_).value_or(cpu_before) : 0;
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus after, Status());
  DaemonUsage used = UsageBetween(before, after);
  used.cpu_seconds = cpu_after - cpu_before;
  series->daemon.Add(used);
  series->rounds.push_back(std::move(all));
  return absl::OkStatus();
}

absl::Status LoadGenerator::HoldLeases(uint64_t leases, uint64_t size) {
  return Ask({{"do", "hold"}, {"leases", leases}, {"size", size}}).status();
}

absl::StatusOr<OpenedGpu> LoadGenerator::OpenGpu(const std::string& path, uint64_t call_bytes,
                                                 const std::string& mount_dir) {
  KVKEEP_ASSIGN_OR_RETURN(const Json answer, Ask({{"do", "open gpu"},
                                                  {"path", path},
                                                  {"call_bytes", call_bytes},
                                                  {"mount_dir", mount_dir}}));
  return OpenedGpu{.device = answer.at("device"), .daemon_bytes = answer.at("daemon_bytes")};
}

absl::StatusOr<Measured> LoadGenerator::CopyPlain(bool to_gpu, uint64_t bytes, double seconds) {
  KVKEEP_ASSIGN_OR_RETURN(
      const Json wire,
      Ask({{"do", "copy plain"}, {"to_gpu", to_gpu}, {"bytes", bytes}, {"seconds", seconds}},
          seconds));
  return FromWire(wire);
}

}  // namespace kvkeep::bench
